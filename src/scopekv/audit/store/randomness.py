"""Whether bytes look sealed: a ciphertext is as good as random, what a model computes is not.

histogram   chi-square of the 256 byte values, as a normal deviate (Wilson and Hilferty, 1931)
zlib        random bytes do not get shorter
repeats     no 16 bytes come twice: two would need 2**64 blocks by chance
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from scopekv.core.sealing import HEADER_BYTES, TAG_BYTES

SAMPLE_BYTES = 32 << 10  # of each object: 2,000 of them take about 4 s
SHORTEST_BYTES = 512  # below, neither measure says anything
DEVIATE_MAX = 8.0  # by chance once in 10**15 samples
SHRINKS_BELOW = 0.97
_MAGIC = b"SKVO"
_BLOCK_BYTES = 16
_NONCE = slice(8, 20)


def body_of(content: bytes) -> bytes:
    """What has to look random: all behind our header; without our header, all."""
    return content[HEADER_BYTES:] if is_sealed_form(content) else content


def nonce_of(content: bytes) -> bytes | None:
    """The nonce in our header, if there is one."""
    return content[_NONCE] if is_sealed_form(content) else None


def is_sealed_form(content: bytes) -> bool:
    """Whether it begins as a sealed object of ours does. It may still hold anything."""
    return content.startswith(_MAGIC) and len(content) > HEADER_BYTES + TAG_BYTES


def deviate(histogram: Counter[int]) -> float:
    """How far from even the byte values are, in standard deviations of chi-square; about 0 +- 1."""
    total = histogram.total()
    expected = total / 256
    chi_square = sum((histogram[value] - expected) ** 2 for value in range(256)) / expected
    degrees = 255
    spread = 2 / (9 * degrees)
    return float(((chi_square / degrees) ** (1 / 3) - (1 - spread)) / spread**0.5)


@dataclass(slots=True)
class Judge:
    """Looks at one object after the other and remembers what it takes to compare them."""

    judged: int = 0
    readable: int = 0  # objects that are not random
    too_short: int = 0
    repeats: int = 0  # runs of 16 bytes that some object had already
    nonces_twice: int = 0
    worst_deviate: float = 0.0
    least_ratio: float = 2.0
    _pool: Counter[int] = field(default_factory=Counter)
    _seen: set[bytes] = field(default_factory=set)
    _nonces: set[bytes] = field(default_factory=set)

    def look(self, content: bytes) -> bool:
        """Whether the object passes as random by itself."""
        nonce = nonce_of(content)
        if nonce is not None:
            self.nonces_twice += nonce in self._nonces
            self._nonces.add(nonce)
        sample = _sample(body_of(content))
        if len(sample) < SHORTEST_BYTES:
            self.too_short += 1
            return True
        self.judged += 1
        histogram = Counter(sample)
        found, ratio = deviate(histogram), len(zlib.compress(sample, 6)) / len(sample)
        self.worst_deviate = max(self.worst_deviate, found)
        self.least_ratio = min(self.least_ratio, ratio)
        twice = self._repeats(sample)
        self.repeats += twice
        random = found < DEVIATE_MAX and ratio > SHRINKS_BELOW and not twice
        if random:
            self._pool.update(histogram)
        else:
            self.readable += 1
        return random

    @property
    def pooled_deviate(self) -> float:
        """Of all objects together that pass alone: a bias too small to see in one shows here."""
        return deviate(self._pool) if self._pool else 0.0

    def _repeats(self, sample: bytes) -> int:
        count = 0
        for block in _blocks(sample):
            if block in self._seen:
                count += 1
            else:
                self._seen.add(block)
        return count


def _sample(body: bytes) -> bytes:
    """Start and end, where formats put what they have to say."""
    if len(body) <= SAMPLE_BYTES:
        return body
    return body[: SAMPLE_BYTES // 2] + body[-SAMPLE_BYTES // 2 :]


def _blocks(sample: bytes) -> Iterator[bytes]:
    """A few aligned blocks of a large sample, all of a small one: memory stays bounded."""
    step = _BLOCK_BYTES * max(1, len(sample) // (_BLOCK_BYTES * 256))
    for start in range(0, len(sample) - _BLOCK_BYTES + 1, step):
        yield sample[start : start + _BLOCK_BYTES]
