"""A small store of this process' own, with faults planted in it: what the scanner must find.

A scan that finds nothing in a real store means something only if the same scan finds these.
"""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Iterator, Mapping, Sequence

from scopekv.audit.store.guesses import Guesses
from scopekv.audit.store.media import Found
from scopekv.audit.store.needles import Needle
from scopekv.audit.store.patterns import EXAMPLES

BODY_BYTES = 4096
_FOLDER = "r60-" + "0" * 24
_OLD_SECONDS = 30 * 86_400


class ScratchMedium:
    """A store in memory. What `planted` puts in is wrong in every way that is looked for."""

    kind, place = "scratch", "scratch"

    def __init__(self, contents: Mapping[str, bytes], now: float) -> None:
        self._contents = dict(contents)
        self._now = now

    @classmethod
    def planted(
        cls,
        needles: Sequence[Needle],
        guesses: Guesses,
        names: Sequence[str],
        *,
        dice: random.Random,
        now: float,
    ) -> ScratchMedium:
        """Each needle inside random bytes; a name that was guessed; plain text; an old object."""
        made: dict[str, bytes] = {}
        for number, needle in enumerate(needles):
            body = dice.randbytes(BODY_BYTES)
            made[f"{_FOLDER}/needle-{number}"] = body[:1000] + needle.content + body[1000:]
        for number, example in enumerate(EXAMPLES):
            made[f"{_FOLDER}/format-{number}"] = dice.randbytes(1000) + b" " + example
        guess = next(iter(guesses.made), "")
        made[f"{_FOLDER}/{guess}{dice.randbytes(12).hex()}"] = dice.randbytes(BODY_BYTES)
        made[f"{_FOLDER}/{names[0] if names else 'name'}"] = dice.randbytes(BODY_BYTES)
        plain = json.dumps({"keys": [dice.gauss(0, 1) for _ in range(300)]}).encode()
        made[f"{_FOLDER}/plain"] = plain
        twice = dice.randbytes(BODY_BYTES)
        made |= {f"{_FOLDER}/twice-{number}": twice for number in range(2)}
        return cls(made, now)

    def walk(self) -> Iterator[Found]:
        mode = stat.S_IFREG | 0o644
        for name, content in self._contents.items():
            yield Found(name, len(content), self._now - _OLD_SECONDS, mode, 0)

    def read(self, name: str, size_bytes_max: int) -> bytes | None:
        found = self._contents.get(name)
        return None if found is None else found[:size_bytes_max]

    def write(self, name: str, content: bytes) -> None:
        self._contents[name] = content

    def remove(self, name: str) -> None:
        self._contents.pop(name, None)

    def close(self) -> None:
        """Nothing is held."""
