"""The plugin's settings: environment variables, since plugins load before any argument is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scopekv.errors import ConfigError

KEYS = "SCOPEKV_TICKET_KEYS"
GROUP = "SCOPEKV_INSTANCE_GROUP"
WITHOUT = "SCOPEKV_WITHOUT_TICKET"
PINNED = "SCOPEKV_PINNED_SHARE_MAX"


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """`refuse`: a request that carries no ticket is refused, where the default isolates it.

    `pinned_share_max`: largest part of the engine's blocks that pinned documents may hold.
    """

    keys_path: Path
    instance_group: str = "default"
    refuse: bool = False
    pinned_share_max: float = 0.5

    @classmethod
    def read(cls, env: Mapping[str, str]) -> PluginSettings | None:
        """Return the settings, or None where SCOPEKV_TICKET_KEYS is unset: the plugin rests."""
        if not env.get(KEYS):
            return None
        without = env.get(WITHOUT, "isolate")
        if without not in ("isolate", "refuse"):
            raise ConfigError(f"{WITHOUT} is {without!r}; it takes isolate or refuse")
        try:
            share = float(env.get(PINNED, "0.5"))
        except ValueError:
            share = -1.0
        if not 0.0 <= share <= 0.9:
            raise ConfigError(f"{PINNED} is {env[PINNED]!r}; it takes a number from 0 to 0.9")
        return cls(Path(env[KEYS]), env.get(GROUP) or "default", without == "refuse", share)
