"""The limits of one tier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scopekv.errors import ConfigError


@dataclass(frozen=True, slots=True)
class TierSettings:
    """How one tier is kept.

    `capacity_bytes`: hard limit of what lies in the store, as far as this process knows of it.
    `shared`: whether others write there too; then what the index does not know is asked for, and
    what it knows holds for `presence_seconds`. `store_id`: the same for all who write to that
    store, of no others; empty: nobody shares it. `manifest`: where recency and uses outlive a
    restart; None keeps none. `stall_seconds`: how long one call may take before its worker is
    given up and the tier suspended. `block_cost_seconds`: what making a block again counts where
    the engine does not say. Everything is in bytes or seconds.
    """

    capacity_bytes: int
    shared: bool = False
    store_id: bytes = b""
    manifest: Path | None = None
    workers: int = 2
    workers_max: int = 6
    queue_blocks_max: int = 2048
    block_cost_seconds: float = 0.03
    stall_seconds: float = 2.5
    presence_seconds: float = 5.0
    absence_seconds: float = 1.0
    recovery_seconds: float = 0.1
    recovery_seconds_max: float = 5.0
    janitor_seconds: float = 10.0
    inventory_seconds: float = 60.0
    manifest_seconds: float = 60.0
    close_seconds: float = 5.0

    def __post_init__(self) -> None:
        if self.capacity_bytes < 1:
            raise ConfigError(f"a tier's capacity is 1 byte or more, not {self.capacity_bytes}")
        if not 1 <= self.workers <= self.workers_max <= 64:
            raise ConfigError(
                f"a tier has 1 to 64 workers, workers_max at least workers; "
                f"not {self.workers} and {self.workers_max}"
            )
        if self.queue_blocks_max < 1:
            raise ConfigError("a tier's queue holds at least one block")
        seconds = (
            self.stall_seconds,
            self.presence_seconds,
            self.absence_seconds,
            self.recovery_seconds,
            self.recovery_seconds_max,
            self.janitor_seconds,
            self.inventory_seconds,
            self.manifest_seconds,
            self.close_seconds,
        )
        if min(seconds) <= 0:
            raise ConfigError("a tier's times are above 0 seconds")
