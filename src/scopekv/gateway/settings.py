"""A gateway's settings, in code; `settings_file` reads them from TOML."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from scopekv.compose import TracingSettings, VaultSettings
from scopekv.core.probing import ProbeLimits
from scopekv.errors import ConfigError
from scopekv.gateway.discovery import Source
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.logs import LogFormat
from scopekv.gateway.oidc_settings import OidcSettings
from scopekv.gateway.upstreams.settings import UpstreamSettings
from scopekv.store.scope_keys import Retention

DEFAULT_PORT = 8080


@dataclass(frozen=True, slots=True)
class RoutingSettings:
    """Limits on what is at the engines. Beyond them requests wait, then get 429.

    `in_flight_max`: requests at one instance or one upstream, from this gateway. `waiting_max`:
    requests that wait in one line (for the engines, an upstream, what explains misses, or what
    counts tokens), over all organisations. `resolve_seconds`: how often names are resolved anew.
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
class CachedContentSettings:
    """What one account, and one organisation, may have of cached contents at a time.

    `per_account_max` 0: none. Their texts lie in every gateway's memory, so they are bounded by
    bytes as well; an organisation may have any number of accounts, so it is bounded itself.
    """

    per_account_max: int = 16
    bytes_per_account_max: int = 8 << 20
    per_org_max: int = 1000
    bytes_per_org_max: int = 64 << 20
    ttl_seconds_max: int = 7 * 86_400

    def __post_init__(self) -> None:
        if not 0 <= self.per_account_max <= 10_000:
            raise ConfigError("[cached_contents] per_account_max takes 0 to 10000")
        if not 1024 <= self.bytes_per_account_max <= 1 << 32:
            raise ConfigError("[cached_contents] bytes_per_account_max takes 1 KiB to 4 GiB")
        if not 1 <= self.per_org_max <= 1_000_000:
            raise ConfigError("[cached_contents] per_org_max takes 1 to 1000000")
        if not 1024 <= self.bytes_per_org_max <= 1 << 40:
            raise ConfigError("[cached_contents] bytes_per_org_max takes 1 KiB to 1 TiB")
        if not 60 <= self.ttl_seconds_max <= 366 * 86_400:
            raise ConfigError("[cached_contents] ttl_seconds_max takes 60 to 31622400")


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """`org_label`: also count tokens by organisation, under its name."""

    org_label: bool = False


@dataclass(frozen=True, slots=True)
class RequestLogSettings:
    """`path` None: none is kept. A full file of `bytes_max` is renamed to PATH.1, PATH.1 to
    PATH.2 and so on; `files_max` files are kept in all.
    """

    path: Path | None = None
    bytes_max: int = 256 << 20
    files_max: int = 4

    def __post_init__(self) -> None:
        if not 1 << 16 <= self.bytes_max <= 1 << 40 or not 1 <= self.files_max <= 1000:
            raise ConfigError("[request_log] bytes_max is from 65536, files_max from 1 to 1000")


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
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    log_format: LogFormat = "text"
    tracing: TracingSettings = field(default_factory=TracingSettings)
    oidc: OidcSettings | None = None  # None: API keys only
    sources: tuple[Source, ...] = ()  # instances that are resolved, besides those listed
    probes: ProbeSettings = field(default_factory=ProbeSettings)
    cached_contents: CachedContentSettings = field(default_factory=CachedContentSettings)
    upstreams: tuple[UpstreamSettings, ...] = ()  # providers beside the engines
    request_log: RequestLogSettings = field(default_factory=RequestLogSettings)

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
        names = [upstream.name for upstream in self.upstreams]
        if len(set(names)) != len(names):
            raise ConfigError(f"two upstreams share a name: {', '.join(sorted(names))}")

    @property
    def own_url(self) -> str:
        """Where programs on this machine reach the gateway, also one that listens everywhere."""
        everywhere = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104
        host = everywhere.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"
