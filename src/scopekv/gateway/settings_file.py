"""`scopekv.toml`: a gateway's settings from a file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from scopekv.compose import TracingSettings, VaultSettings
from scopekv.core.probing import ProbeLimits
from scopekv.core.scopes import ScopeKind
from scopekv.errors import ConfigError, Misuse
from scopekv.gateway.discovery import Source
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.logs import LogFormat
from scopekv.gateway.oidc_settings import OidcSection, oidc_settings
from scopekv.gateway.settings import (
    DEFAULT_PORT,
    CachedContentSettings,
    GatewaySettings,
    MetricsSettings,
    ProbeAction,
    ProbeSettings,
    RequestLogSettings,
    RoutingSettings,
)
from scopekv.gateway.upstreams.settings import UpstreamSection, upstream_settings
from scopekv.store.scope_keys import Retention


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
        int, Meta(description="Requests of this gateway at one engine or upstream; more wait.")
    ] = RoutingSettings().in_flight_max
    waiting_max: Annotated[
        int,
        Meta(description="Requests that wait in one line, over all organisations; more get 429."),
    ] = RoutingSettings().waiting_max
    wait_seconds_max: Annotated[
        float, Meta(description="How long a request waits for a place before it gets 429.")
    ] = RoutingSettings().wait_seconds_max
    resolve_seconds: Annotated[
        float, Meta(description="How often `dns` and `kubernetes` are resolved anew.")
    ] = RoutingSettings().resolve_seconds


class _Probes(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    action: Annotated[
        ProbeAction,
        Meta(description="`alarm`: an audit entry; `narrow`: sharing ends, too; or `off`."),
    ] = ProbeSettings().action
    points_max: Annotated[
        int, Meta(description="Near misses of so many prefixes of others are an alarm.")
    ] = ProbeLimits().points_max
    siblings_max: Annotated[
        int, Meta(description="So many prompts that part after the same text are an alarm.")
    ] = ProbeLimits().siblings_max
    window_seconds: Annotated[float, Meta(description="Within so many seconds.")] = (
        ProbeLimits().window_seconds
    )
    narrow_seconds: Annotated[
        float, Meta(description="How long a prober shares with nobody, with `narrow`.")
    ] = ProbeSettings().narrow_seconds


class _CachedContents(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    per_account_max: Annotated[
        int, Meta(description="So many live ones at a time; 0: none are made here.")
    ] = CachedContentSettings().per_account_max
    bytes_per_account_max: Annotated[int, Meta(description="Of all their texts, in UTF-8.")] = (
        CachedContentSettings().bytes_per_account_max
    )
    per_org_max: Annotated[
        int, Meta(description="So many live ones of all accounts of an organisation.")
    ] = CachedContentSettings().per_org_max
    bytes_per_org_max: Annotated[
        int, Meta(description="Of all their texts; each gateway holds them in memory.")
    ] = CachedContentSettings().bytes_per_org_max
    ttl_seconds_max: Annotated[int, Meta(description="The furthest end from now.")] = (
        CachedContentSettings().ttl_seconds_max
    )


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


class _RequestLog(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    path: Annotated[
        str,
        Meta(description="JSON lines for `scopekv simulate`, without text. Empty: none are kept."),
    ] = ""
    bytes_max: Annotated[
        int, Meta(description="A full file is renamed to `PATH.1`, that to `PATH.2`, and so on.")
    ] = RequestLogSettings().bytes_max
    files_max: Annotated[int, Meta(description="How many files are kept in all.")] = (
        RequestLogSettings().files_max
    )


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
    oidc: Annotated[
        OidcSection | None,
        Meta(description="Bearer tokens of an identity provider, docs/identity.md."),
    ] = None
    routing: Annotated[_Routing, Meta(description="Limits, docs/routing.md.")] = _Routing()
    metrics: Annotated[_Metrics, Meta(description="What /metrics tells.")] = _Metrics()
    tracing: Annotated[
        _Tracing, Meta(description="Traces over OTLP, docs/observing.md; extra `otel`.")
    ] = _Tracing()
    probes: Annotated[
        _Probes, Meta(description="Callers that probe others' prompts, docs/operations.md.")
    ] = _Probes()
    cached_contents: Annotated[
        _CachedContents, Meta(description="Texts that callers keep for a while, docs/using.md.")
    ] = _CachedContents()
    upstreams: Annotated[
        list[UpstreamSection],
        Meta(description="Providers' APIs beside the engines, docs/upstreams.md."),
    ] = []
    request_log: Annotated[
        _RequestLog, Meta(description="What was served, for planning, docs/planning.md.")
    ] = _RequestLog()


def read_settings(path: Path) -> GatewaySettings:
    """Read `scopekv.toml`. Raises `ConfigError` naming the key at fault."""
    try:
        content = msgspec.convert(tomllib.loads(path.read_text("utf-8-sig")), SettingsFile)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}. `scopekv gateway --help` shows one.") from error
    if not content.instances:
        raise ConfigError(f"{path} names no [[instances]]: add name and url of one engine")
    instances, sources = _instances(content.instances)
    built = (
        *("instances", "retention", "vault", "routing", "metrics", "tracing", "probes", "oidc"),
        *("cached_contents", "upstreams", "request_log"),
    )
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
        probes=_probes(content.probes),
        request_log=_request_log(content.request_log, path.parent),
        oidc=oidc_settings(content.oidc, path.parent),
        upstreams=upstream_settings(content.upstreams, path.parent),
        cached_contents=CachedContentSettings(**msgspec.structs.asdict(content.cached_contents)),
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


def _request_log(content: _RequestLog, folder: Path) -> RequestLogSettings:
    """The path counts from the file's own folder."""
    path = folder / content.path if content.path else None
    return RequestLogSettings(path, content.bytes_max, content.files_max)


def _vault(content: _Vault | None, folder: Path) -> VaultSettings | None:
    """Paths count from the file's own folder."""
    if content is None:
        return None
    values = {name: getattr(content, name) for name in _Vault.__struct_fields__}
    for name in ("ca_file", "token_file"):
        values[name] = folder / values[name] if values[name] else None
    return VaultSettings(**values)
