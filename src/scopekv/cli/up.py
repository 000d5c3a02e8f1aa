"""`scopekv up`: everything on one machine - engines, gateway, registry."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console

from scopekv.cli import demo
from scopekv.cli.options import default_data_dir, registry_options, registry_url
from scopekv.cli.running import check_port, claim, free_port, gateway_running, run
from scopekv.compose import World, open_world
from scopekv.engines.embedded import EmbeddedEngines, EngineProgress
from scopekv.engines.events import events_folder
from scopekv.engines.model import ensure_model
from scopekv.engines.settings import EngineSettings
from scopekv.engines.tiers import DEFAULT_TIERS, parse_tiers
from scopekv.errors import ConfigError
from scopekv.gateway.app import Gateway
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.settings import DEFAULT_PORT, GatewaySettings

PLUGIN = "scopekv"
UP_FILE = "up.toml"


@click.command()
@click.option("--demo", "with_demo", is_flag=True, help="Add two users and a public document.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Where the gateway listens.")
@click.option("--port", default=DEFAULT_PORT, show_default=True, type=click.IntRange(0, 65535))
@click.option("--instances", default=1, show_default=True, type=click.IntRange(1, 64))
@click.option("--kv-cache-gib", default=1, show_default=True, help="Engine memory per instance.")
@click.option(
    "--max-model-len", default=8192, show_default=True, help="Positions; above 8192 YaRN."
)
@click.option(
    "--tier",
    "tiers",
    multiple=True,
    default=DEFAULT_TIERS,
    show_default=True,
    metavar="SPEC",
    help="Where blocks go that leave engine memory, nearest first: host=SIZE, "
    "directory=[PATH,]SIZE, valkey://HOST:PORT,SIZE, s3://BUCKET/PREFIX,SIZE; `none` for none. "
    "All but host memory is sealed.",
)
@registry_options
def up(
    with_demo: bool,
    host: str,
    port: int,
    instances: int,
    kv_cache_gib: int,
    max_model_len: int,
    tiers: tuple[str, ...],
    registry: str | None,
    data_dir: Path | None,
) -> None:
    """Start engines with a small real model, the gateway and the registry. Ctrl-C ends them all.

    \b
    Try it:       scopekv up --demo
    Your own:     scopekv up --instances 2, then `scopekv admin --help` in a second terminal
    Outgrown:     `scopekv gateway --help`
    """
    folder = (data_dir or default_data_dir()).expanduser().absolute()

    async def body() -> None:
        console = Console(stderr=True)
        wanted = parse_tiers(tiers)
        # The engines ask the gateway for keys, so its port is known before they start.
        gateway_settings = GatewaySettings(
            (), host=host, port=port or free_port(host), registry=registry or ""
        )
        check_port(host, gateway_settings.port)
        claim(folder)
        model = await asyncio.to_thread(ensure_model, folder, console=console)
        world = open_world(folder, registry_url(registry, folder))
        settings = EngineSettings(
            model_dir=model,
            data_dir=folder,
            instances=instances,
            kv_cache_gib=kv_cache_gib,
            max_model_len=max_model_len,
            extra_env=plugin_environment(
                world, gateway_settings.instance_group, gateway_settings.own_url
            ),
            tiers=wanted,
            # One engine is never chosen among: its events would be work for nothing.
            events_dir=events_folder(folder) if instances > 1 else None,
        )
        async with AsyncExitStack() as stack:
            engines = EmbeddedEngines(settings)
            stack.push_async_callback(engines.stop)
            await _start(engines, console)
            found = tuple(InstanceAddress(i.name, i.url, i.api_key) for i in engines.instances)
            full = replace(gateway_settings, instances=found)
            shown = demo.prepare(world.registry) if with_demo else None
            running = gateway_running(full, world, restart=engines.restart)
            gateway = await stack.enter_async_context(running)
            stack.enter_context(described(folder, full))
            if shown is not None:
                with console.status("Reading the public document into the cache ..."):
                    await gateway.warmer.settle()
            _show(host, folder, gateway, shown)
            raise ConfigError(await engines.wait_failed())

    run(body)


def plugin_environment(world: World, instance_group: str, broker_url: str) -> dict[str, str]:
    """What an engine of ours is started with: whose tickets it verifies, and who leases it keys.

    `broker_url` empty: nobody, so that it has no outer tier.
    """
    env = {
        "VLLM_PLUGINS": PLUGIN,
        "SCOPEKV_TICKET_KEYS": str(world.ticket_keys),
        "SCOPEKV_INSTANCE_GROUP": instance_group,
    }
    if broker_url:
        env["SCOPEKV_BROKER_URL"] = broker_url
        env["SCOPEKV_BROKER_SECRET"] = str(world.instance_secret_path)
    return env


@contextmanager
def described(folder: Path, settings: GatewaySettings) -> Iterator[None]:
    """Keep `up.toml` in the data directory: where this deployment's gateway and engines are.

    For `scopekv audit`, which reads it where it is told no other. It has the engines' API keys, and
    perhaps the registry's password, so it is for the owner alone.
    """
    path = folder / UP_FILE
    lines = [f"host = {_quoted(settings.host)}", f"port = {settings.port}"]
    lines.append(f"registry = {_quoted(settings.registry)}")
    for one in settings.instances:
        lines += ["[[instances]]", f"name = {_quoted(one.name)}", f"url = {_quoted(one.url)}"]
        lines.append(f"api_key = {_quoted(one.api_key)}")
    path.unlink(missing_ok=True)  # a killed one's; made anew, its mode is ours from the start
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(handle, "w", encoding="utf-8") as file:
        file.write("\n".join((*lines, "")))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)


def _quoted(text: str) -> str:
    """A TOML string: JSON's escapes are all among TOML's."""
    return json.dumps(text)


async def _start(engines: EmbeddedEngines, console: Console) -> None:
    console.print(f"Starting vLLM, which takes about half a minute. It logs to {engines.log_dir}.")
    with console.status("Starting vLLM ...") as status:

        def progress(event: EngineProgress) -> None:
            status.update(f"{event.name}: {event.state}, {event.elapsed_seconds:.0f} s")

        await engines.start(progress)
        await engines.wait_ready()


def _show(host: str, folder: Path, gateway: Gateway, shown: demo.Demo | None) -> None:
    url = f"http://{host}:{gateway.port}/v1"
    click.echo(f"\nScopeKV is ready at {url}")
    if shown is None:
        click.echo("Make an organisation, a user and a key: scopekv admin --help")
        return
    request = demo.write_request(folder / "demo-request.json", gateway.fleet.models()[0], shown)
    click.echo("\nThe public document is in the cache. Ask about it as alice of acme:\n")
    click.echo(_curl(url, shown.keys["alice"], request))
    click.echo("\nand as bob of globex, who shares the document and nothing else:\n")
    click.echo(_curl(url, shown.keys["bob"], request))
    click.echo("\nThe keys are new at each start. Ctrl-C stops everything. Next: docs/tutorial.md")


def _curl(url: str, key: str, request: Path) -> str:
    return (
        f"curl -s {url}/chat/completions -H 'Authorization: Bearer {key}' "
        f"-H 'X-ScopeKV-Detail: 1' -d @{shlex.quote(str(request))}"
    )
