"""From what an engine was seen to do to the model of it: `Speeds`. Computes, asks nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from scopekv.core.speeds import PrefillCurve, PrefillSpeed, TierSpeed
from scopekv.errors import Misuse
from scopekv.simulate.fleet.speeds import DecodeStep, Prefill, Speeds

_ROUNDS = 12  # over the same observations, until the fit stands still
_CAPACITY = re.compile(rb"^vllm:cache_config_info\{.*$", re.MULTILINE)
_TIER_NAMES = {"host": "host", "directory": "disk", "valkey": "remote", "s3": "remote"}


@dataclass(frozen=True, slots=True)
class Observed:
    """One prefill of tokens [cached, total), alone on the engine: seconds to its first token."""

    cached: int
    total: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Decoded:
    """So many sequences at once, each with this mean time between two tokens."""

    sequences: int
    token_seconds: float


@dataclass(frozen=True, slots=True)
class Burst:
    """`count` short prompts at once: the last one's first token, and one's alone.

    `computed_tokens`: of each; few where the engine finds them in its cache.
    """

    count: int
    computed_tokens: int
    all_seconds: float
    one_seconds: float

    @property
    def each_seconds(self) -> float:
        """What each of them keeps the engine busy."""
        return max(0.0, self.all_seconds - self.one_seconds) / max(1, self.count - 1)


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the engine says of its memory, as far as it says it."""

    engine_tokens: int
    kv_bytes_per_token: int


def curve_of(observed: Sequence[Observed]) -> PrefillCurve:
    """The curve through the observations, as the gateway and the engine themselves learn it.

    Raises Misuse for fewer than 3, or for prompts of one length.
    """
    if len(observed) < 3 or len({one.total - one.cached for one in observed}) < 2:
        raise Misuse("a prefill curve takes 3 observations or more, of different lengths")
    rate = median((one.total - one.cached) / one.seconds for one in observed)
    speed = PrefillSpeed(tokens_per_second=rate)
    for _ in range(_ROUNDS):
        for one in observed:
            speed.observe(one.cached, one.total - one.cached, one.seconds)
    return speed.curve()


def speeds_of(
    name: str,
    source: str,
    *,
    observed: Sequence[Observed],
    decoded: Sequence[Decoded],
    burst: Burst,
    capacity: Capacity,
    tiers: Mapping[str, TierSpeed],
    sequences_max: int,
) -> Speeds:
    """Put the measurements together. What does not keep the engine busy is overhead."""
    curve = curve_of(observed)
    busy = burst.each_seconds - curve.token_seconds * burst.computed_tokens
    fixed = min(curve.fixed_seconds, max(0.0, busy))
    steps: list[DecodeStep] = []
    for one in sorted(decoded, key=lambda one: one.sequences):
        before = steps[-1].seconds if steps else 0.0
        steps.append(DecodeStep(one.sequences, max(one.token_seconds, before, 1e-6)))
    return Speeds(
        name=name,
        source=source,
        kv_bytes_per_token=capacity.kv_bytes_per_token,
        engine_tokens=capacity.engine_tokens,
        prefill=Prefill(fixed, curve.token_seconds, curve.pair_seconds),
        steps=tuple(steps),
        tiers=dict(tiers),
        overhead_seconds=curve.fixed_seconds - fixed,
        sequences_max=sequences_max,
    )


def capacity_of(
    metrics: bytes, tiers: Mapping[str, Any], kv_bytes_per_token: int | None
) -> Capacity:
    """Read vLLM's /metrics and the plugin's report on tiers.

    `kv_bytes_per_token`: where neither says it. Raises Misuse that says what to give.
    """
    line = _CAPACITY.search(metrics)
    blocks, size = _label(line, b"num_gpu_blocks"), _label(line, b"block_size")
    if not blocks or not size:
        raise Misuse(
            "the engine's /metrics does not say how many blocks it has (vllm:cache_config_info): "
            "is this a vLLM server?"
        )
    if kv_bytes_per_token is None:
        host = tiers.get("host", {})
        block_bytes = host.get("block_bytes") if isinstance(host, Mapping) else None
        if not isinstance(block_bytes, int) or block_bytes < size:
            raise Misuse(
                "nothing says how large a token's keys and values are: give --kv-bytes-per-token "
                "(layers x 2 x KV heads x head size x bytes of the dtype)"
            )
        kv_bytes_per_token = block_bytes // size
    return Capacity(blocks * size, kv_bytes_per_token)


def _label(line: re.Match[bytes] | None, name: bytes) -> int:
    found = re.search(name + rb'="(\d+)"', line[0]) if line is not None else None
    return int(found[1]) if found is not None else 0


def tier_speeds(tiers: Mapping[str, Any]) -> dict[str, TierSpeed]:
    """The speeds that the plugin has measured; those without a sample are left out."""
    found: dict[str, TierSpeed] = {}
    for medium, report in tiers.items():
        speed = report.get("speed") if isinstance(report, Mapping) else None
        name = _TIER_NAMES.get(medium)
        if name is None or not isinstance(speed, Mapping) or not speed.get("samples"):
            continue
        found[name] = TierSpeed(
            float(speed["latency_seconds"]),
            float(speed["bytes_per_second"]),
            samples=int(speed["samples"]),
            spread=max(1.0, float(speed["spread"])),
        )
    return found
