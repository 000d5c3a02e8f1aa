"""The one source of chance: every number in a world comes from dice made here."""

from __future__ import annotations

from random import Random


def dice(*name: object) -> Random:
    """Dice of a name, the same in every process: text seeds do not go through `hash`."""
    return Random(" ".join(map(str, name)))  # noqa: S311 - chance that can be repeated is wanted
