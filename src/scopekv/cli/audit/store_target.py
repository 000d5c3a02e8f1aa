"""From the command line to what a store audit is aimed at."""

from __future__ import annotations

import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from scopekv.audit.store import Callers, MetricsPage, Secret, StoreTarget
from scopekv.audit.store.engines import (
    EngineAddress,
    corrupt_counted,
    forget_all,
    reopen_all,
    revoke_user,
)
from scopekv.audit.store.target import Do
from scopekv.cli.options import registry_url
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.engines.tiers import with_credentials
from scopekv.errors import ConfigError
from scopekv.gateway.addresses import server_root
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.settings_file import read_settings

KEY_FILES = {
    "keys/root.key": "the root key",
    "keys/wrap.key": "a wrapping key",
    "keys/instance.key": "the instance key",
}
NAMES_MAX = 40  # each costs a pass over all that is read for every spelling
NAMES_EACH = 5
_COMMON = {*ScopeKind, "public", "default"}  # labels have these values, whoever is named so


@dataclass(frozen=True, slots=True, repr=False)
class Given:
    """The options, as they were given. Keys are empty where there is none."""

    config: Path | None
    data_dir: Path
    registry: str | None
    stores: Sequence[str]
    logs: Sequence[Path]
    metrics: Sequence[str]
    events: Sequence[str]
    names: Sequence[str]
    gateway: str
    key: str
    other_key: str
    admin_key: str
    account: str
    model: str
    engines: Sequence[str]
    engine_key: str


def target_of(given: Given, environment: dict[str, str]) -> StoreTarget:
    """Put together what was given and what the gateway's own files say. Raises `ConfigError`."""
    settings = read_settings(given.config) if given.config else None
    url = given.gateway or (settings.own_url if settings else "")
    if given.key and not url:
        raise ConfigError("a key needs --gateway, or --config, which says where the gateway is")
    engines = _engines(given, settings)
    names, scopes = _registered(given, settings)
    pages = [MetricsPage(page, given.admin_key) for page in given.metrics]
    pages += [MetricsPage(f"{server_root(one.url)}/metrics", one.key) for one in engines]
    stores = _stores(given)
    media = sorted({medium_of(one) for one in stores})
    return StoreTarget(
        stores=tuple(with_credentials(one, environment) for one in stores),
        callers=Callers(url, given.key, given.other_key, given.model) if given.key else None,
        logs=tuple(_files(given.logs)),
        metrics=tuple(pages),
        events=tuple(given.events),
        names=tuple(dict.fromkeys([*given.names, *names]))[:NAMES_MAX],
        scopes=tuple(scopes),
        secrets=tuple(_secrets(given)),
        forget=partial(forget_all, engines, media) if engines else None,
        reopen=partial(reopen_all, engines) if engines else None,
        revoke=_revocation(given, url),
        corrupt=partial(corrupt_counted, engines) if engines else None,
    )


def medium_of(store: str) -> str:
    """`directory`, `valkey` or `s3`: as engines name such a tier."""
    kind = re.split("[:=]", store, maxsplit=1)[0]
    return "directory" if kind == "file" else kind


def _stores(given: Given) -> list[str]:
    """Those named; else the directory tiers of `scopekv up`, if there are any."""
    default = given.data_dir / "tiers"
    nothing_else = not (given.logs or given.metrics or given.events)
    if given.stores or not (nothing_else or given.config):
        return list(given.stores)
    if default.is_dir():
        return [f"directory={default}"]
    raise ConfigError(
        f"no store is named, and {default} is none. Name each: --store directory=/path, "
        "valkey://HOST:PORT, s3://BUCKET/PREFIX"
    )


def _engines(given: Given, settings: GatewaySettings | None) -> list[EngineAddress]:
    if given.engines:
        return [EngineAddress(url, given.engine_key) for url in given.engines]
    return [EngineAddress(one.url, one.api_key) for one in settings.instances] if settings else []


def _files(paths: Sequence[Path]) -> list[Path]:
    """Files as they are; of a folder, its logs."""
    found: list[Path] = []
    for path in paths:
        found += sorted(path.rglob("*.log*")) if path.is_dir() else [path]
    if paths and not found:
        raise ConfigError("the folders given as --logs hold no *.log file")
    return found


def _secrets(given: Given) -> list[Secret]:
    """The deployment's keys, raw and as they are written, and the API keys of this audit."""
    keys = {"an API key": given.key, "another API key": given.other_key}
    found = [Secret(kind, key.encode()) for kind, key in keys.items() if key]
    for name, kind in KEY_FILES.items():
        path = given.data_dir / name
        if not path.is_file():
            continue
        try:
            lines = path.read_text("ascii").split()
            found += [Secret(kind, bytes.fromhex(line)) for line in lines]
        except (OSError, UnicodeDecodeError, ValueError, binascii.Error) as error:
            raise ConfigError(f"cannot read {path}: {type(error).__name__}") from None
    return found


def _registered(given: Given, settings: GatewaySettings | None) -> tuple[list[str], list[Scope]]:
    """Names of organisations, users and documents, and scopes, if the registry is at hand."""
    named = given.registry or (settings.registry if settings is not None else "")
    url = registry_url(named, given.data_dir)
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).is_file():
        return [], []
    from scopekv.compose import open_registry

    registry = open_registry(url)
    try:
        with registry.read() as view:
            orgs = list(view.orgs.list("", NAMES_MAX))
            names = [one.name for one in orgs]
            scopes = [Scope(ScopeKind.ORG, (one.uid,)) for one in orgs]
            for org in orgs[:NAMES_EACH]:
                for service in (False, True):
                    found = [
                        one.principal
                        for one in view.accounts.list(org.uid, service, "", NAMES_EACH)
                    ]
                    names += [one.name for one in found]
                    scopes += [Scope(ScopeKind.USER, (org.uid, one.uid)) for one in found]
            names += [one.name for one in view.documents.list()[:NAMES_EACH]]
            return [name for name in names if name not in _COMMON], scopes
    finally:
        registry.close()


def _revocation(given: Given, url: str) -> Do | None:
    if not given.account:
        return None
    org, slash, name = given.account.partition("/")
    if not (org and slash and name and given.admin_key and given.key):
        raise ConfigError(
            "--revoke takes ORG/NAME, the account of --key, and an --admin-key that may revoke it"
        )
    return partial(revoke_user, url, given.admin_key, org, name)
