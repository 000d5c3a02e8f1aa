"""What a store audit is aimed at, and how much it tries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scopekv.core.scopes import Scope
from scopekv.errors import ConfigError

Progress = Callable[[str, int, int], None]  # what is done now, steps done, steps in all
Do = Callable[[], Awaitable[None]]
Count = Callable[[], Awaitable[int]]
Tickets = Callable[[], Awaitable[Sequence[str]]]


@dataclass(frozen=True, slots=True, repr=False)
class Callers:
    """Two accounts of different organisations at one gateway, or engine, to place canaries with.

    `model` empty: the first that `key` may use. Without `other_key` no two scopes are compared.
    """

    url: str
    key: str
    other_key: str = ""
    model: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class MetricsPage:
    """A page of metrics in Prometheus' text form, and the key that it takes, if any."""

    url: str
    key: str = ""


@dataclass(frozen=True, slots=True, repr=False)
class Secret:
    """Bytes that no store may hold in any spelling. `kind` is what the report calls them."""

    kind: str
    content: bytes


@dataclass(frozen=True, slots=True, repr=False)
class StoreTarget:
    """Everything that a thief is given. What is left out is reported as not tested.

    `stores`: `directory=/path`, `valkey://...`, `s3://...`. `names`: of organisations, users,
    documents; they must be nowhere. `scopes`: of known accounts; no folder may confirm them
    without the deployment's secret. `events`: ZeroMQ endpoints of engines. `forget`: makes
    every engine forget its own and host memory, so that the next answer comes from a tier that is
    audited. `reopen`: ends that; called once, at the end.
    `revoke`: ends the epoch of the first caller's scope, and returns once every tier has purged
    it. `corrupt`: how many corrupt objects the tiers have counted, over all engines. `tickets`:
    what engines were sent for it so far, as whoever took over an engine has them: then names
    are tried that lack nothing but the key.
    """

    stores: tuple[str, ...]
    callers: Callers | None = None
    logs: tuple[Path, ...] = ()
    metrics: tuple[MetricsPage, ...] = ()
    events: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    scopes: tuple[Scope, ...] = ()
    secrets: tuple[Secret, ...] = ()
    forget: Do | None = None
    reopen: Do | None = None
    revoke: Do | None = None
    corrupt: Count | None = None
    tickets: Tickets | None = None

    def __post_init__(self) -> None:
        if not (self.stores or self.logs or self.metrics or self.events):
            raise ConfigError(
                "a store audit needs something to read: name a store, a log, metrics or events"
            )


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """`canary_tokens`: of each prompt that is placed; several chunks of the tiers.

    `objects_max`, `bytes_max`: how much of each store is read; everything is listed. `tamper`:
    whether to change objects of the audit's own prompts. `settle_seconds_max`: how long writes to
    a tier may take; `still_seconds`: they are over once none came for so long. `tries`: how often
    an attack is tried until the tier looks at what was changed.
    """

    seed: int = 1
    canary_tokens: int = 170
    objects_max: int = 2000
    bytes_max: int = 256 << 20
    tamper: bool = False
    settle_seconds_max: float = 20.0
    still_seconds: float = 0.75
    tries: int = 3

    def __post_init__(self) -> None:
        if not 64 <= self.canary_tokens <= 100_000:
            raise ConfigError(f"canary_tokens is {self.canary_tokens}; it takes 64 to 100,000")
        if self.objects_max < 1 or self.bytes_max < 1 << 16 or self.tries < 1:
            raise ConfigError("objects_max and tries are from 1, bytes_max from 65,536")
        if not 0 < self.still_seconds <= self.settle_seconds_max <= 600:
            raise ConfigError("settle_seconds_max is at most 600, still_seconds at most that")
