"""What a run costs, at the user's own prices: nothing is priced that was not asked for."""

from __future__ import annotations

from dataclasses import dataclass, fields

from scopekv.errors import Misuse


@dataclass(frozen=True, slots=True)
class Prices:
    """In one currency. GiB of memory are those that are configured, moved ones those read."""

    instance_hour: float = 0.0
    host_gib_hour: float = 0.0
    disk_gib_hour: float = 0.0
    remote_gib_hour: float = 0.0
    remote_gib_read: float = 0.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if not 0 <= getattr(self, each.name) < float("inf"):
                raise Misuse(f"the price {each.name} is from 0, and finite")

    @classmethod
    def parse(cls, text: str) -> Prices:
        """Read `instance_hour=2.5,remote_gib_hour=0.00003`, each optional."""
        names = [each.name for each in fields(cls)]
        found: dict[str, float] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            try:
                found[names[names.index(name)]] = float(value)
            except ValueError as error:
                raise Misuse(
                    f"price {part[:60]!r}: write NAME=NUMBER, joined by commas, of "
                    f"{', '.join(names)}"
                ) from error
        return cls(**found)


GIB = 1 << 30


def cost(
    prices: Prices,
    *,
    hours: float,
    instances: int,
    tier_bytes: dict[str, float],
    remote_read_bytes: int,
) -> float:
    """The cost of a fleet for so long. `tier_bytes`: configured, of all instances together.

    Infinite memory is priced at nothing.
    """
    by_hour = prices.instance_hour * instances
    for tier, size in tier_bytes.items():
        if size < float("inf"):
            by_hour += getattr(prices, f"{tier}_gib_hour") * size / GIB
    return by_hour * hours + prices.remote_gib_read * remote_read_bytes / GIB
