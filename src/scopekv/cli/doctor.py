"""`scopekv doctor`: look at everything a gateway needs, and say what to do."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from scopekv.cli.options import data_dir_option, default_data_dir, json_option, registry_url
from scopekv.cli.up import UP_FILE
from scopekv.compose import TICKET_KEYS, open_world
from scopekv.core.tickets import audience_id
from scopekv.errors import ConfigError
from scopekv.gateway.checkup import Finding, Level, examine, keys_of, listens, registry_of
from scopekv.gateway.checkup.engines import close
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.settings_file import read_settings

_MARKS = {Level.OK: "ok", Level.WARNING: "warning", Level.ERROR: "ERROR"}


@click.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="The gateway's scopekv.toml. [default: up.toml of the running `scopekv up`]",
)
@data_dir_option
@json_option
def doctor(config: Path | None, data_dir: Path | None, as_json: bool) -> None:
    """Check configuration, keys, registry, engines, plugin, template, hashes, clock and tiers.

    Changes nothing, but for keys and a registry file that a gateway's first start would make too.
    Sends each engine a request of one token. Exit code: 0 all well or warnings only, 1 an error.

    \b
    scopekv doctor --config scopekv.toml
    """
    folder = (data_dir or default_data_dir()).expanduser().absolute()
    findings = asyncio.run(_examined(config or folder / UP_FILE, folder))
    if as_json:
        click.echo(json.dumps({"findings": [asdict(one) for one in findings]}))
    else:
        _print(findings)
    if any(one.level is Level.ERROR for one in findings):
        raise SystemExit(1)


async def _examined(config: Path, folder: Path) -> list[Finding]:
    try:
        settings = read_settings(config)
    except ConfigError as problem:
        do = "correct it: `scopekv gateway --help` shows one; or name it with --config"
        if config == folder / UP_FILE:
            do = "start `scopekv up`, or name your gateway's file with --config"
        return [Finding("config", config.name, Level.ERROR, str(problem), do)]
    found = [Finding("config", config.name, Level.OK, f"{len(settings.instances)} instances")]
    found += keys_of(folder, vault=settings.vault is not None)
    url = settings.registry or registry_url(None, folder)
    of_registry, registry = registry_of(url)
    found.append(of_registry)
    found.append(listens(settings.host, settings.port))
    if registry is None or any(one.level is Level.ERROR for one in found):
        return found
    registry.close()
    return found + await _engines(settings, folder, url)


async def _engines(settings: GatewaySettings, folder: Path, url: str) -> list[Finding]:
    try:
        world = open_world(folder, url, settings.vault)
    except ConfigError as problem:
        do = "see docs/keys.md"
        return [Finding("keys", "keys", Level.ERROR, str(problem), do)]
    audience = audience_id(settings.instance_group)
    try:
        fleet = Fleet(settings.instances, audience=audience, key_id=world.signer.key_id)
    except ConfigError as problem:
        world.registry.close()
        do = "correct the url of this instance in the gateway's file"
        return [Finding("config", "instances", Level.ERROR, str(problem), do)]
    try:
        return await examine(fleet, folder / TICKET_KEYS)
    finally:
        await close(fleet)
        world.registry.close()


def _print(findings: list[Finding]) -> None:
    table = Table("", "check", "where", Column("what", overflow="fold"), "do")
    for one in findings:
        table.add_row(_MARKS[one.level], *map(Text, (one.check, one.where, one.what, one.do)))
    Console().print(table)
    errors = sum(one.level is Level.ERROR for one in findings)
    warnings = sum(one.level is Level.WARNING for one in findings)
    click.echo(f"{errors} errors, {warnings} warnings, {len(findings)} checks")
