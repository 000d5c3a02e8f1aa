"""A gateway's settings, in code or from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import msgspec

from scopekv.compose import VaultSettings
from scopekv.core.probing import ProbeLimits
from scopekv.core.scopes import ScopeKind
from scopekv.errors import ConfigError, Misuse
from scopekv.gateway.discovery import Source
from scopekv.gateway.instances import InstanceAddress
from scopekv.store.scope_keys import Retention

DEFAULT_PORT = 8080


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """Limits on what is at the engines. Beyond them requests wait, then get 429.

    `in_flight_max`: requests at one instance, from this gateway. `waiting_max`: requests that wait
    for a place, over all organisations. `resolve_seconds`: how often names are resolved anew.
    """

    in_flight_max: int = 512
    waiting_max: int = 512
    wait_seconds_max: float = 30.0
    resolve_seconds: float = 5.0

    def __post_init__(self) -> None:
        if not 1 <= self.in_flight_max <= 100_000 or not 0 <= self.waiting_max <= 1_000_000:
            raise ConfigError("[routing] in_flight_max is from 1, waiting_max from 0")
        if not 0 <= self.wait_seconds_max <= 3600:
            raise ConfigError("[routing] wait_seconds_max takes 0 to 3600")
        if not 0.1 <= self.resolve_seconds <= 3600:
            raise ConfigError("[routing] resolve_seconds takes 0.1 to 3600")


class ProbeAction(StrEnum):
    """What follows when a caller probes others' prompts."""

    OFF = "off"
    ALARM = "alarm"  # an entry in the audit log
    NARROW = "narrow"  # the same, and the caller shares with nobody for a while


@dataclass(frozen=True, slots=True)
class ProbeSettings:
    """See `core.probing`. `narrow_seconds`: how long a prober shares with nobody else."""

    action: ProbeAction = ProbeAction.ALARM
    limits: ProbeLimits = field(default_factory=ProbeLimits)
    narrow_seconds: float = 3600.0

    def __post_init__(self) -> None:
        if not 1 <= self.narrow_seconds <= 30 * 86_400:
            raise ConfigError(
                f"[probes] narrow_seconds is {self.narrow_seconds}; it takes 1 to 2592000"
            )


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """`registry`: a database URL, empty for the file in the data directory.

    `ticket_ttl_seconds`: how long a minted ticket verifies, on its way to the engine. `vault`: what
    wraps scope keys; None: the file `keys/wrap.key` in the data directory.
    """

    instances: tuple[InstanceAddress, ...]
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    registry: str = ""
    instance_group: str = "default"
    ticket_ttl_seconds: int = 30
    body_bytes_max: int = 16 << 20
    stop_seconds_max: float = 10.0
    retention: Retention = field(default_factory=Retention)
    vault: VaultSettings | None = None
    routing: RoutingSettings = field(default_factory=RoutingSettings)
    sources: tuple[Source, ...] = ()  # instances that are resolved, besides those listed
    probes: ProbeSettings = field(default_factory=ProbeSettings)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}; it takes 0 (any free one) to 65535")
        if not 1 <= self.ticket_ttl_seconds <= 3600:
            raise ConfigError(
                f"ticket_ttl_seconds is {self.ticket_ttl_seconds}; it takes 1 to 3600"
            )
        if not 1024 <= self.body_bytes_max <= 1 << 30:
            raise ConfigError(f"body_bytes_max is {self.body_bytes_max}; it takes 1 KiB to 1 GiB")
        if not 0 <= self.stop_seconds_max <= 3600:
            raise ConfigError(f"stop_seconds_max is {self.stop_seconds_max}; it takes 0 to 3600")
        named: list[InstanceAddress | Source] = [*self.instances, *self.sources]
        for instance in named:
            if not instance.api_key.isascii() or not instance.api_key.isprintable():
                raise ConfigError(f"the api_key of instance {instance.name} is not printable ASCII")
        names = [instance.name for instance in named]
        if len(set(names)) != len(names):
            raise ConfigError(f"two instances share a name: {', '.join(sorted(names))}")


class _Instance(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    url: str = ""
    api_key: str = ""
    dns: str = ""
    kubernetes: str = ""


class _Routing(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    in_flight_max: int = RoutingSettings().in_flight_max
    waiting_max: int = RoutingSettings().waiting_max
    wait_seconds_max: float = RoutingSettings().wait_seconds_max
    resolve_seconds: float = RoutingSettings().resolve_seconds


class _Probes(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    action: ProbeAction = ProbeSettings().action
    points_max: int = ProbeLimits().points_max
    siblings_max: int = ProbeLimits().siblings_max
    window_seconds: float = ProbeLimits().window_seconds
    narrow_seconds: float = ProbeSettings().narrow_seconds


class _Vault(msgspec.Struct, forbid_unknown_fields=True):
    address: str
    key: str = "scopekv"
    mount: str = "transit"
    namespace: str = ""
    ca_file: str = ""
    token_file: str = ""
    timeout_seconds: float = 2.0


class _File(msgspec.Struct, forbid_unknown_fields=True):
    instances: list[_Instance]
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    registry: str = ""
    instance_group: str = "default"
    ticket_ttl_seconds: int = 30
    body_bytes_max: int = 16 << 20
    stop_seconds_max: float = 10.0
    retention: dict[ScopeKind, int] = {}
    vault: _Vault | None = None
    routing: _Routing = _Routing()
    probes: _Probes = _Probes()


def read_settings(path: Path) -> GatewaySettings:
    """Read `scopekv.toml`. Raises `ConfigError` naming the key at fault."""
    try:
        content = msgspec.convert(tomllib.loads(path.read_text("utf-8")), _File)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}. `scopekv gateway --help` shows one.") from error
    if not content.instances:
        raise ConfigError(f"{path} names no [[instances]]: add name and url of one engine")
    instances, sources = _instances(content.instances)
    built = ("instances", "retention", "vault", "routing", "probes")
    rest = {name: getattr(content, name) for name in _File.__struct_fields__ if name not in built}
    retention = Retention(**{kind.value: seconds for kind, seconds in content.retention.items()})
    vault = _vault(content.vault, path.parent)
    routing = RoutingSettings(**msgspec.structs.asdict(content.routing))
    return GatewaySettings(
        instances,
        **rest,
        retention=retention,
        vault=vault,
        routing=routing,
        sources=sources,
        probes=_probes(content.probes),
    )


def _instances(
    given: list[_Instance],
) -> tuple[tuple[InstanceAddress, ...], tuple[Source, ...]]:
    """Those with a URL of their own, and those to be resolved."""
    for one in given:
        if sum(map(bool, (one.url, one.dns, one.kubernetes))) != 1:
            raise ConfigError(f"instances {one.name}: set one of url, dns, kubernetes")
    return (
        tuple(InstanceAddress(i.name, i.url, i.api_key) for i in given if i.url),
        tuple(Source(i.name, i.dns, i.kubernetes, i.api_key) for i in given if not i.url),
    )


def _probes(content: _Probes) -> ProbeSettings:
    try:
        limits = ProbeLimits(content.points_max, content.siblings_max, content.window_seconds)
    except Misuse as error:
        raise ConfigError(f"[probes] {error}") from error
    return ProbeSettings(content.action, limits, content.narrow_seconds)


def _vault(content: _Vault | None, folder: Path) -> VaultSettings | None:
    """Paths count from the file's own folder."""
    if content is None:
        return None
    values = {name: getattr(content, name) for name in _Vault.__struct_fields__}
    for name in ("ca_file", "token_file"):
        values[name] = folder / values[name] if values[name] else None
    return VaultSettings(**values)
