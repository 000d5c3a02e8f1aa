"""The console: pages over what the gateway knows, for people, each by its own permissions."""

from __future__ import annotations

from scopekv.console.app import Console
from scopekv.console.parts import CONSOLE_PLACES, Parts

__all__ = ["CONSOLE_PLACES", "Console", "Parts"]
