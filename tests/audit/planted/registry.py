"""All planted faults by name."""

from __future__ import annotations

from tests.audit.planted import identity, permission, telling, tickets, tiers
from tests.audit.planted.switch import Planted

PLANTED: dict[str, Planted] = {
    **identity.PLANTED,
    **tickets.PLANTED,
    **permission.PLANTED,
    **tiers.PLANTED,
    **telling.PLANTED,
}
