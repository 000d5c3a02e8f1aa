"""The console: pages over what the gateway knows, for people, each by its own permissions."""

from __future__ import annotations

from scopekv.console.app import Console
from scopekv.console.parts import Parts

__all__ = ["Console", "Parts"]
