"""Dice without state: the same seed and the same numbers give the same draw, in any order."""

from __future__ import annotations

from functools import lru_cache

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def draw(seed: int, *numbers: int) -> float:
    """A number in [0, 1) (splitmix64, Steele et al. 2014). Cheap where only the last one varies."""
    return (_mixed(_begun(seed, *numbers[:-1]), numbers[-1]) >> 11) / (1 << 53)


@lru_cache(maxsize=64)
def _begun(seed: int, *numbers: int) -> int:
    state = seed & _MASK
    for number in numbers:
        state = _mixed(state, number)
    return state


def _mixed(state: int, number: int) -> int:
    state = (state + _GOLDEN + (number & _MASK)) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)
