"""Dice without state: the same seed and the same numbers give the same draw, in any order."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def draw(seed: int, *numbers: int) -> float:
    """A number in [0, 1) (splitmix64, Steele et al. 2014)."""
    state = seed & _MASK
    for number in numbers:
        state = (state + _GOLDEN + (number & _MASK)) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return (state >> 11) / (1 << 53)
