"""The plugin's settings: environment variables, since plugins load before any argument is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from scopekv.adapters.broker_client import BrokerSettings
from scopekv.errors import ConfigError

KEYS = "SCOPEKV_TICKET_KEYS"
GROUP = "SCOPEKV_INSTANCE_GROUP"
WITHOUT = "SCOPEKV_WITHOUT_TICKET"
PINNED = "SCOPEKV_PINNED_SHARE_MAX"
BROKER_URL = "SCOPEKV_BROKER_URL"
BROKER_SECRET = "SCOPEKV_BROKER_SECRET"  # noqa: S105 - the name of a variable that holds a path


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """`refuse`: a request that carries no ticket is refused, where the default isolates it.

    `pinned_share_max`: largest part of the engine's blocks that pinned documents may hold.
    `broker`: where sealing keys are leased; None: this engine has no tier beyond host memory.
    """

    keys_path: Path
    instance_group: str = "default"
    refuse: bool = False
    pinned_share_max: float = 0.5
    broker: BrokerSettings | None = None

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
        return cls(
            Path(env[KEYS]), env.get(GROUP) or "default", without == "refuse", share, _broker(env)
        )


def _broker(env: Mapping[str, str]) -> BrokerSettings | None:
    url, secret = env.get(BROKER_URL), env.get(BROKER_SECRET)
    if not url and not secret:
        return None
    if not url or not secret:
        raise ConfigError(f"{BROKER_URL} and {BROKER_SECRET} go together; set both or neither")
    return BrokerSettings(url, Path(secret))
