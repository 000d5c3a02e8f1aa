"""What happens in a world, drawn from its seed: a list that can be shortened.

Every operation has dice of its own, so that leaving one out changes what the others find, not what
they do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scopekv.errors import Misuse
from scopekv.simulate.fuzz.dice import dice

LENGTH = 40


class Kind(StrEnum):
    ASK = "ask"  # a request
    DRIFT = "drift"  # a request whose tokens are not those of its ticket
    FORGE = "forge"  # a request with a bad ticket, none, or one used before
    WORK = "work"  # turns of everybody
    WAIT = "wait"  # time passes
    REVISE = "revise"
    READDRESS = "readdress"
    WITHDRAW = "withdraw"
    PUBLISH = "publish"
    JOIN = "join"
    LEAVE = "leave"
    END_USER = "end_user"
    END_ORG = "end_org"
    KILL = "kill"
    START = "start"
    NEW_GATEWAY = "new_gateway"
    RESET = "reset"
    SET_CLOCK = "set_clock"
    STORE_TROUBLE = "store_trouble"
    STORE_WELL = "store_well"
    DAMAGE = "damage"
    BUS_TROUBLE = "bus_trouble"
    NETWORK_TROUBLE = "network_trouble"
    REGISTRY_TROUBLE = "registry_trouble"
    ROTATE = "rotate"
    EXPIRE = "expire"


_WEIGHTS = {
    Kind.ASK: 36,
    Kind.DRIFT: 4,
    Kind.FORGE: 2,
    Kind.WORK: 30,
    Kind.WAIT: 8,
    Kind.REVISE: 2,
    Kind.READDRESS: 1.5,
    Kind.WITHDRAW: 0.7,
    Kind.PUBLISH: 1,
    Kind.JOIN: 1,
    Kind.LEAVE: 1.5,
    Kind.END_USER: 2,
    Kind.END_ORG: 1,
    Kind.KILL: 2,
    Kind.START: 2,
    Kind.NEW_GATEWAY: 1,
    Kind.RESET: 1,
    Kind.SET_CLOCK: 1,
    Kind.STORE_TROUBLE: 2.5,
    Kind.STORE_WELL: 2,
    Kind.DAMAGE: 2,
    Kind.BUS_TROUBLE: 2,
    Kind.NETWORK_TROUBLE: 1,
    Kind.REGISTRY_TROUBLE: 1,
    Kind.ROTATE: 1,
    Kind.EXPIRE: 1,
}


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that happens. `number`: its place in the whole list, which its dice come from."""

    number: int
    kind: Kind

    def __str__(self) -> str:
        return f"{self.number}:{self.kind}"


def operations(seed: int) -> list[Operation]:
    """The operations of a seed."""
    kinds = dice("operations", seed).choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=LENGTH)
    return [Operation(number, kind) for number, kind in enumerate(kinds)]


def kept(seed: int, numbers: str | None) -> list[Operation]:
    """The operations of a seed, or those of them whose numbers are listed: `0,4,17`.

    Raises `Misuse` for a list that is none.
    """
    every = operations(seed)
    if numbers is None:
        return every
    try:
        wanted = {int(one) for one in numbers.split(",")}
    except ValueError:
        raise Misuse(
            f"operations are numbers with commas between them, not {numbers[:40]!r}"
        ) from None
    if not wanted <= set(range(len(every))):
        raise Misuse(f"operations are numbered 0 to {len(every) - 1}")
    return [one for one in every if one.number in wanted]
