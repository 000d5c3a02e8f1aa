"""`scopekv doctor`: what keeps a deployment from working as it should, and what to do about it."""

from __future__ import annotations

from scopekv.gateway.checkup.engines import examine
from scopekv.gateway.checkup.finding import Finding, Level
from scopekv.gateway.checkup.machine import keys_of, listens, registry_of

__all__ = ["Finding", "Level", "examine", "keys_of", "listens", "registry_of"]
