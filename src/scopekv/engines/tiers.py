"""The tiers behind an engine's own memory: how they are written down, and what vLLM is told.

host=2GiB                             host memory, plain like the engine's own
directory=10GiB                       sealed files under the data directory
directory=/mnt/nvme/kv,200GiB         the same elsewhere
valkey://10.0.0.5:6379,100GiB         a sealed store that several engines share
s3://bucket/prefix?region=...,1TiB
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, quote, unquote, urlsplit, urlunsplit

from scopekv.errors import ConfigError

HOST = "host"
DIRECTORY = "directory"
DEFAULT_TIERS = ("host=1GiB", "directory=10GiB")
_UNITS = {"MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)(MiB|GiB|TiB)")
_SHARED = ("valkey", "s3")
CREDENTIALS = (  # what an engine inherits where it has a shared tier
    *("SCOPEKV_VALKEY_USERNAME", "SCOPEKV_VALKEY_PASSWORD"),
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION"),
)
_SECRETS = {"secret_access_key", "session_token"}
_CONNECTOR = "scopekv.engines.vllm.offloading"


@dataclass(frozen=True, slots=True)
class Tier:
    """One tier. `url` is empty for host memory; `{instance}` in it stands for the engine's name."""

    url: str
    size_bytes: int


def parse_tiers(texts: Sequence[str]) -> tuple[Tier, ...]:
    """Read the written forms. Raises `ConfigError`, which shows the form that was meant.

    `none` alone means no tier. Host memory comes first, whatever the order: all others need it.
    """
    if tuple(texts) == ("none",):
        return ()
    tiers = [_tier(text) for text in texts]
    hosts = [tier for tier in tiers if not tier.url]
    if tiers and len(hosts) != 1:
        raise ConfigError(
            f"the tiers name host memory {len(hosts)} times; every other tier is reached through "
            "it, so name it once: --tier host=1GiB"
        )
    media = [urlsplit(tier.url).scheme for tier in tiers]
    if len(set(media)) != len(media):
        raise ConfigError("two tiers are of one kind; receipts and metrics name tiers by kind")
    return (*hosts, *(tier for tier in tiers if tier.url))


def _tier(text: str) -> Tier:
    name, _, rest = text.partition("=")
    if name == HOST:
        return Tier("", _size(rest, text))
    if name == DIRECTORY:
        path, _, size = rest.rpartition(",")
        folder = Path(path).expanduser().absolute() if path else Path("{data_dir}/tiers")
        return Tier(f"file://{quote(str(folder), safe='/{}')}/{{instance}}", _size(size, text))
    url, _, size = text.rpartition(",")
    if urlsplit(url).scheme in _SHARED:
        if "@" in url.partition("?")[0] or not _SECRETS.isdisjoint(dict(_query(url))):
            raise ConfigError(
                f"tier {_shown(text)!r} holds a password, and command lines are open to all users "
                "of a machine. Set SCOPEKV_VALKEY_PASSWORD (and SCOPEKV_VALKEY_USERNAME), or AWS_* "
                "for S3, and leave it out."
            )
        return Tier(url, _size(size, text))
    raise ConfigError(
        f"tier {_shown(text)!r} is not one of: host=SIZE, directory=[PATH,]SIZE, "
        "valkey://HOST:PORT,SIZE, s3://BUCKET/PREFIX,SIZE - a SIZE is like 512MiB or 10GiB"
    )


def _size(text: str, whole: str) -> int:
    found = _SIZE.fullmatch(text)
    size = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if size < 1 << 20:
        raise ConfigError(
            f"the size in tier {_shown(whole)!r} must be a number with MiB, GiB or TiB, from 1MiB"
        )
    return size


def _query(url: str) -> list[tuple[str, str]]:
    return parse_qsl(urlsplit(url).query, keep_blank_values=True)


def _shown(text: str) -> str:
    """Without what may be a password or a key."""
    return re.sub(r"//.*@", "//***@", text.partition("?")[0])[:120]


def transfer_config(tiers: Sequence[Tier], places: Mapping[str, str]) -> str | None:
    """What `--kv-transfer-config` takes for these tiers; None without any.

    `places`: what `{data_dir}` and `{instance}` stand for.
    """
    if not tiers:
        return None
    host, *outer = tiers
    extra = {
        "spec_name": "ScopedOffloadingSpec",
        "spec_module_path": f"{_CONNECTOR}.spec",
        "cpu_bytes_to_use": host.size_bytes,
        "secondary_tiers": [
            {
                "type": "SealedTierManager",
                "module_path": f"{_CONNECTOR}.tier",
                "url": _filled(tier.url, places),
                "capacity_bytes": tier.size_bytes,
                **_state(tier, places),
            }
            for tier in outer
        ],
    }
    config = {
        "kv_connector": "ScopedConnector",
        "kv_role": "kv_both",
        "kv_connector_module_path": f"{_CONNECTOR}.connector",
        "kv_connector_extra_config": extra,
    }
    return json.dumps(config, separators=(",", ":"))


def _state(tier: Tier, places: Mapping[str, str]) -> dict[str, str]:
    """Where a directory tier's manifest lies: beside its objects, for recency after a restart."""
    if not tier.url.startswith("file://"):
        return {}
    return {"state_dir": f"{unquote(_filled(tier.url, places).removeprefix('file://'))}-state"}


def with_credentials(url: str, env: Mapping[str, str]) -> str:
    """A Valkey URL with the user and password that the environment names, if it does."""
    parts = urlsplit(url)
    user, password = (env.get(name, "") for name in CREDENTIALS[:2])
    if parts.scheme != "valkey" or not (user or password) or "@" in parts.netloc:
        return url
    netloc = f"{quote(user, safe='')}:{quote(password, safe='')}@{parts.netloc}"
    return urlunsplit(parts._replace(netloc=netloc))


def _filled(url: str, places: Mapping[str, str]) -> str:
    for name, value in places.items():
        url = url.replace(f"{{{name}}}", quote(value))
    return url
