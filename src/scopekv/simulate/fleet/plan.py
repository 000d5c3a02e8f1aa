"""What is to be simulated: a fleet, its memories, its rules."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from scopekv.errors import Misuse
from scopekv.simulate.fleet.identity import Isolation
from scopekv.simulate.fleet.memory import POLICIES
from scopekv.simulate.fleet.placing import ROUTES
from scopekv.simulate.fleet.speeds import BUILT_IN, TIERS, Speeds
from scopekv.simulate.fleet.tenants import TenantSpec

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kKMGT]?)(iB|B)?\Z")
_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"": 1, "k": 1 << 10, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
AS_BUILT = "as-built"


def tokens_of(text: str, kv_bytes_per_token: int) -> float:
    """Read `3M` or `3072000` (tokens), `40GiB` (bytes), `inf`. Raises Misuse that shows the forms.

    With `iB` a size is of bytes in powers of 1,024; with `B` and without (tokens) of 1,000.
    """
    if text.strip() == "inf":
        return math.inf
    found = _SIZE.match(text.strip())
    if found is None:
        raise Misuse(
            f"size {text[:40]!r} is none: write tokens (3M, 1500000), bytes (40GiB) or inf"
        )
    number, unit, as_bytes = float(found[1]), found[2], found[3]
    if as_bytes is None:
        return number * _UNITS[unit]
    return number * (_BINARY if as_bytes == "iB" else _UNITS)[unit] / kv_bytes_per_token


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """One run. Memory is in tokens, `math.inf` for no limit; `tiers` by name, nearest first.

    `policy` AS_BUILT: engine memory as vLLM's (lru), tiers with their own policy;
    any other is of every memory. `speed_up`: arrivals so many times
    as fast. `warm_up`: the part of the requests that fill the caches and are in no figure.
    """

    instances: int = 1
    engine_tokens: float = math.inf
    tiers: Mapping[str, float] = field(default_factory=dict)
    policy: str = AS_BUILT
    route: str = "scopekv"
    isolation: Isolation = Isolation.LAYERED
    tenants: TenantSpec = field(default_factory=TenantSpec)
    speeds: Speeds = BUILT_IN["a100-8b"]
    seed: int = 1
    speed_up: float = 1.0
    warm_up: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= self.instances <= 10_000:
            raise Misuse(f"a fleet has 1 to 10,000 instances, not {self.instances}")
        if self.policy != AS_BUILT and self.policy not in POLICIES:
            known = ", ".join((AS_BUILT, *POLICIES))
            raise Misuse(f"policy {self.policy[:40]!r} is none of {known}")
        if self.route not in ROUTES:
            raise Misuse(f"route {self.route[:40]!r} is none of {', '.join(ROUTES)}")
        if strange := set(self.tiers) - set(TIERS):
            raise Misuse(f"tier {min(strange)[:40]!r} is none of {', '.join(TIERS)}")
        if not 0 < self.speed_up < math.inf or not 0 <= self.warm_up < 1:
            raise Misuse("arrivals are sped up by more than 0; the warm-up is from 0 to below 1")
        if not self.engine_tokens > 0:
            raise Misuse("engine memory holds more than 0 tokens")
