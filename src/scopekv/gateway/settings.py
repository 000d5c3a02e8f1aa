"""A gateway's settings, in code or from a TOML file."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from scopekv.compose import TracingSettings, VaultSettings
from scopekv.core.scopes import ScopeKind
from scopekv.errors import ConfigError
from scopekv.gateway.discovery import Source
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.logs import LogFormat
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


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """`org_label`: also count tokens by organisation, under its name."""

    org_label: bool = False


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
    sources: tuple[Source, ...] = ()  # instances that are resolved, besides those listed

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
    name: Annotated[str, Meta(description="A name of your choice, for routes, logs and metrics.")]
    url: Annotated[str, Meta(description="One engine. Set one of url, dns, kubernetes.")] = ""
    api_key: Annotated[str, Meta(description="What `vllm serve` got as `--api-key`.")] = ""
    dns: Annotated[
        str, Meta(description="A URL whose name is resolved again and again: an engine an address.")
    ] = ""
    kubernetes: Annotated[
        str,
        Meta(description="`NAMESPACE/SERVICE:PORT`: an engine an address of its EndpointSlices."),
    ] = ""


class _Routing(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    in_flight_max: Annotated[
        int, Meta(description="Requests of this gateway at one engine; more wait.")
    ] = RoutingSettings().in_flight_max
    waiting_max: Annotated[
        int,
        Meta(description="Requests that wait for a place, over all organisations; more get 429."),
    ] = RoutingSettings().waiting_max
    wait_seconds_max: Annotated[
        float, Meta(description="How long a request waits for a place before it gets 429.")
    ] = RoutingSettings().wait_seconds_max
    resolve_seconds: Annotated[
        float, Meta(description="How often `dns` and `kubernetes` are resolved anew.")
    ] = RoutingSettings().resolve_seconds


class _Vault(msgspec.Struct, forbid_unknown_fields=True):
    address: Annotated[str, Meta(description="Vault's URL.")]
    key: Annotated[str, Meta(description="Name of the transit key.")] = "scopekv"
    mount: Annotated[str, Meta(description="Where the transit engine is mounted.")] = "transit"
    namespace: Annotated[str, Meta(description="Vault namespace, if there is one.")] = ""
    ca_file: Annotated[str, Meta(description="Certificates that Vault's is checked against.")] = ""
    token_file: Annotated[
        str, Meta(description="Read anew for each call. Without it: the variable VAULT_TOKEN.")
    ] = ""
    timeout_seconds: Annotated[float, Meta(description="Of one call.")] = 2.0


class _Metrics(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    org_label: Annotated[
        bool, Meta(description="Also count tokens by organisation, under its name.")
    ] = False


class _Tracing(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    endpoint: Annotated[
        str, Meta(description="Where spans go: `http://HOST:4318/v1/traces`. Empty: none are made.")
    ] = TracingSettings().endpoint
    service_name: Annotated[str, Meta(description="`service.name` of the spans.")] = (
        TracingSettings().service_name
    )
    sample_share: Annotated[
        float, Meta(description="Part of the requests that is recorded, 0 to 1.")
    ] = TracingSettings().sample_share


class SettingsFile(msgspec.Struct, forbid_unknown_fields=True):
    """`scopekv.toml`, key by key. docs/reference/settings.md is made of these descriptions."""

    instances: Annotated[list[_Instance], Meta(description="The engines; at least one.")]
    host: Annotated[str, Meta(description="Where the gateway listens.")] = "127.0.0.1"
    port: Annotated[int, Meta(description="0: any free one.")] = DEFAULT_PORT
    registry: Annotated[
        str,
        Meta(description="`postgresql://USER@HOST/DATABASE`; empty: SQLite in the data directory."),
    ] = ""
    instance_group: Annotated[
        str, Meta(description="Tickets are for engines of this group, `SCOPEKV_INSTANCE_GROUP`.")
    ] = "default"
    ticket_ttl_seconds: Annotated[
        int, Meta(description="How long a ticket verifies, on its way to the engine.")
    ] = 30
    body_bytes_max: Annotated[int, Meta(description="Of a request; more gets 413.")] = 16 << 20
    stop_seconds_max: Annotated[
        float, Meta(description="How long answers under way may take when the gateway stops.")
    ] = 10.0
    log_format: Annotated[
        LogFormat, Meta(description="The log on stderr: lines for people, or JSON objects.")
    ] = "text"
    retention: Annotated[
        dict[ScopeKind, int],
        Meta(description="Seconds that blocks are kept anywhere, by kind of scope, from 60."),
    ] = {}
    vault: Annotated[
        _Vault | None, Meta(description="What wraps sealing keys; without it a file, docs/keys.md.")
    ] = None
    routing: Annotated[_Routing, Meta(description="Limits, docs/routing.md.")] = _Routing()
    metrics: Annotated[_Metrics, Meta(description="What /metrics tells.")] = _Metrics()
    tracing: Annotated[
        _Tracing, Meta(description="Traces over OTLP, docs/observing.md; extra `otel`.")
    ] = _Tracing()


def read_settings(path: Path) -> GatewaySettings:
    """Read `scopekv.toml`. Raises `ConfigError` naming the key at fault."""
    try:
        content = msgspec.convert(tomllib.loads(path.read_text("utf-8")), SettingsFile)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}. `scopekv gateway --help` shows one.") from error
    if not content.instances:
        raise ConfigError(f"{path} names no [[instances]]: add name and url of one engine")
    instances, sources = _instances(content.instances)
    built = ("instances", "retention", "vault", "routing", "metrics", "tracing")
    rest = {
        name: getattr(content, name) for name in SettingsFile.__struct_fields__ if name not in built
    }
    retention = Retention(**{kind.value: seconds for kind, seconds in content.retention.items()})
    vault = _vault(content.vault, path.parent)
    routing = RoutingSettings(**msgspec.structs.asdict(content.routing))
    return GatewaySettings(
        instances,
        **rest,
        retention=retention,
        vault=vault,
        routing=routing,
        metrics=MetricsSettings(**msgspec.structs.asdict(content.metrics)),
        tracing=TracingSettings(**msgspec.structs.asdict(content.tracing)),
        sources=sources,
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


def _vault(content: _Vault | None, folder: Path) -> VaultSettings | None:
    """Paths count from the file's own folder."""
    if content is None:
        return None
    values = {name: getattr(content, name) for name in _Vault.__struct_fields__}
    for name in ("ca_file", "token_file"):
        values[name] = folder / values[name] if values[name] else None
    return VaultSettings(**values)
