"""`scopekv gateway`: one gateway in front of engines that run already."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from scopekv.cli.options import data_dir_option, default_data_dir, registry_url
from scopekv.cli.running import follow, gateway_running, run
from scopekv.compose import open_world
from scopekv.errors import ConfigError
from scopekv.gateway.settings_file import read_settings


@click.command()
@click.option(
    "--config",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A TOML file, see below.",
)
@click.option("--port", type=click.IntRange(0, 65535), help="Instead of the file's port.")
@data_dir_option
def gateway(config: Path, port: int | None, data_dir: Path | None) -> None:
    """Run a gateway in front of vLLM servers.

    \b
    scopekv.toml:
      host = "0.0.0.0"
      port = 8080
      registry = "postgresql://scopekv@db/scopekv"   # default: SQLite in the data directory
      [[instances]]
      name = "gpu-0"
      url = "http://gpu-0:8000"
      api_key = "what vllm serve got as --api-key"
      [[instances]]                                  # any number of them behind one name
      name = "pool"
      dns = "http://vllm.internal:8000"              # or kubernetes = "NAMESPACE/SERVICE:PORT"
      [routing]                                      # docs/routing.md
      in_flight_max = 512                            # at one instance; more wait, then get 429
      [retention]                                    # seconds that blocks are kept, per scope kind
      session = 14400
      [probes]                                       # docs/operations.md
      action = "narrow"                              # default: "alarm"
      [vault]                                        # wraps sealing keys; default: keys/wrap.key
      address = "https://vault:8200"                 # docs/keys.md has the rest
      [oidc]                                         # sign-in by tokens; docs/identity.md
      issuer = "https://login.example.com"
      audience = "scopekv"
      organisation_claim = "org"
      [[upstreams]]                                  # providers beside engines; docs/upstreams.md
      name = "claude"
      kind = "anthropic"                             # or "openai"
      base_url = "https://api.anthropic.com"
      models = ["claude-sonnet-5"]
      api_key_file = "anthropic.key"

    Instances that are added to the file or removed from it count at once, without a restart.

    \b
    On each engine, with `pip install scopekv` beside vLLM:
      VLLM_PLUGINS=scopekv SCOPEKV_TICKET_KEYS=ticket-keys.json \\
        vllm serve MODEL --prefix-caching-hash-algo sha256_cbor --enable-prompt-tokens-details

    ticket-keys.json is made in the data directory, under keys/. It holds public keys only.
    """
    try:
        settings = read_settings(config)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
    if port is not None:
        settings = replace(settings, port=port)
    folder = (data_dir or default_data_dir()).expanduser().absolute()

    async def body() -> None:
        registry = settings.registry or registry_url(None, folder)
        world = open_world(folder, registry, settings.vault, settings.tracing)
        async with gateway_running(settings, world) as server:
            click.echo(f"ScopeKV gateway at http://{settings.host}:{server.port}")
            click.echo(f"engines verify tickets with {world.ticket_keys}")
            for instance in server.fleet.instances:
                click.echo(f"  {instance.address.name}: {instance.isolation} ({instance.reason})")
            await follow(config, server)  # until cancelled

    run(body, log_format=settings.log_format)
