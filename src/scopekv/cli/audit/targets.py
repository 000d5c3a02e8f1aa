"""From what an operator says to an isolation audit's target: a deployment's own file, or keys."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from scopekv.audit.endpoint import Endpoint
from scopekv.audit.isolation import EngineAccess, IsolationTarget, Member
from scopekv.audit.isolation.restarting import restarts_of
from scopekv.cli.audit.registrar import forge_of, registered
from scopekv.cli.options import registry_url
from scopekv.cli.up import UP_FILE
from scopekv.compose import ROOT_KEY, open_registry, open_world
from scopekv.errors import ConfigError, ScopeKVError, Unavailable
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.settings_file import read_settings

ADAPTERS_MAX = 4


@asynccontextmanager
async def registered_target(
    *,
    config: Path | None,
    registry: str | None,
    data_dir: Path,
    url: str | None,
    model: str | None,
    run: str,
) -> AsyncIterator[IsolationTarget]:
    """A deployment of ours, with principals of the audit's own while the block runs.

    `config`: the gateway's file; None: `up.toml` of a running `scopekv up`, if there is one.
    `run` names the principals. Raises `ConfigError`, and what the registry raises.
    """
    settings = _settings(config, data_dir, url)
    where = url or settings.own_url
    database = registry or settings.registry or registry_url(None, data_dir)
    _check_database(database)
    engines = tuple(EngineAccess(i.name, i.url, i.api_key) for i in settings.instances)
    async with AsyncExitStack() as stack:
        if (data_dir / ROOT_KEY).exists():
            world = open_world(data_dir, database, settings.vault)
            opened = world.registry
        else:  # elsewhere: whatever keys were made here would not be the deployment's
            world, opened = None, open_registry(database)
        stack.callback(opened.close)
        registrar = stack.enter_context(registered(opened, run))
        forge = forge_of(world, registrar, settings.instance_group) if world is not None else None
        found = IsolationTarget(
            url=where,
            model="",
            members=registrar.members,
            keys=registrar.keys,
            engines=engines,
            registrar=registrar,
            forge=forge,
            operator_key=registrar.operator_key,
        )
        yield await _with_restarts(await _with_models(found, model))


async def keyed_target(
    *, url: str, keys: Sequence[tuple[Member, str]], model: str | None
) -> IsolationTarget:
    """Any OpenAI-compatible endpoint, by keys alone. Raises `ConfigError`, `Unavailable`."""
    found = IsolationTarget(
        url=url,
        model="",
        members=tuple(member for member, _ in keys),
        keys={member.seat: key for member, key in keys},
    )
    async with Endpoint(url) as endpoint:
        narrows = await _is_ours(endpoint)
    return await _with_models(replace(found, narrows=narrows), model)


def read_key(text: str) -> tuple[Member, str]:
    """`ORG/NAME=KEY`, or `ORG/NAME=@FILE`. Raises `ConfigError`, which never shows the key."""
    name, _, value = text.partition("=")
    org, _, account = name.partition("/")
    if not (org and account and value):
        raise ConfigError("a --key is ORG/NAME=KEY or ORG/NAME=@FILE, as in acme/alice=@alice.key")
    if value.startswith("@"):
        try:
            value = Path(value[1:]).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"cannot read the key of {name} from its file") from error
    return Member(org, account), value


def _settings(config: Path | None, data_dir: Path, url: str | None) -> GatewaySettings:
    if config is not None:
        return read_settings(config)
    if (data_dir / UP_FILE).exists():
        return read_settings(data_dir / UP_FILE)
    if url is None:
        raise ConfigError(
            f"nothing to audit: no `scopekv up` runs on {data_dir}. Start one, or name the "
            "gateway's file with --config, or its address with --url"
        )
    return GatewaySettings(())


def _check_database(url: str) -> None:
    """Refuse to make a registry where there is none: no gateway would know its keys."""
    if url.startswith("sqlite:///") and not Path(url.removeprefix("sqlite:///")).exists():
        raise ConfigError(
            f"there is no registry at {url.removeprefix('sqlite:///')}. Run this where the "
            "gateway's data directory is (--data-dir), or name its --registry"
        )


async def _with_models(target: IsolationTarget, model: str | None) -> IsolationTarget:
    """The target with the model it is to be asked for, and the others that it serves."""
    async with Endpoint(target.url) as endpoint:
        try:
            models = await endpoint.models(target.keys[target.members[0].seat])
        except Unavailable as error:
            raise Unavailable(
                f"{error}. Is the endpoint up, and are these its keys and its registry?"
            ) from error
    if not models:
        raise ConfigError(f"{target.url} serves no model now")
    chosen = model or models[0]
    if chosen not in models:
        raise ConfigError(f"{target.url} serves no {chosen!r}; it has {', '.join(models[:9])}")
    others = tuple(name for name in models if name != chosen)
    return replace(target, model=chosen, adapters=others[:ADAPTERS_MAX])


async def _with_restarts(target: IsolationTarget) -> IsolationTarget:
    """The target whose engines can be restarted, where its gateway runs them itself."""
    restarts = await restarts_of(target.url, target.operator_key)
    if restarts is None:
        return target
    engines = tuple(replace(one, restart=restarts(one.name)) for one in target.engines)
    return replace(target, engines=engines)


async def _is_ours(endpoint: Endpoint) -> bool:
    """Whether it says of itself what a ScopeKV gateway does."""
    try:
        reply = await endpoint.call("GET", "/readyz", None, key=None)
    except ScopeKVError:
        return False
    rows: Any = reply.body.get("instances") if isinstance(reply.body, dict) else None
    return isinstance(rows, list) and all("isolation" in row for row in rows)
