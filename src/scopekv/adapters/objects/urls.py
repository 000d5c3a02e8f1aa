"""Reading a store's URL: what may be in it, said without repeating what is in it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, urlsplit

from scopekv.errors import ConfigError

CONNECT_SECONDS = 0.25
CALL_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a store may take: to connect, and for one round trip, whatever hangs."""

    connect_seconds: float = CONNECT_SECONDS
    call_seconds: float = CALL_SECONDS

    def __post_init__(self) -> None:
        for seconds in (self.connect_seconds, self.call_seconds):
            if not 0.001 <= seconds <= 60:
                raise ConfigError(f"a store's time limit is 0.001 to 60 seconds, not {seconds}")


def split(url: str) -> SplitResult:
    """Split a URL; `ConfigError`, without the URL, if it is none. It may hold a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigError("the object store's URL cannot be read: check host and port") from None
    if parts.fragment:
        raise ConfigError("the object store's URL has a part after #: write # in a password as %23")
    return parts


def options(parts: SplitResult, known: Collection[str]) -> dict[str, str]:
    """The query, each name known and given once."""
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    found = dict(pairs)
    if len(found) != len(pairs) or not found.keys() <= set(known):
        raise ConfigError(
            f"a {parts.scheme}:// URL takes each of these once after the ?: {', '.join(known)}"
        )
    return found


def flag(values: dict[str, str], name: str) -> bool:
    """An option that is `true` or `false`, which is the default."""
    value = values.get(name, "false")
    if value not in ("true", "false"):
        raise ConfigError(f"the option {name} of an object store's URL is true or false")
    return value == "true"
