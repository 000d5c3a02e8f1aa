"""`scopekv tiers`: what a vLLM that you run yourself is told of its tiers."""

from __future__ import annotations

import click

from scopekv.engines.tiers import DEFAULT_TIERS, parse_tiers, transfer_config
from scopekv.errors import ConfigError


@click.group()
def tiers() -> None:
    """Tiers for engines that you start yourself; `scopekv up --tier` does it for its own."""


@tiers.command()
@click.option("--tier", "texts", multiple=True, default=DEFAULT_TIERS, show_default=True)
@click.option("--instance", default="engine-0", show_default=True, help="This engine's name.")
@click.option("--data-dir", default="/var/lib/scopekv", show_default=True)
def config(texts: tuple[str, ...], instance: str, data_dir: str) -> None:
    """Print the value of vLLM's --kv-transfer-config for these tiers.

    \b
    vllm serve MODEL --prefix-caching-hash-algo sha256_cbor \\
      --kv-transfer-config "$(scopekv tiers config --tier host=64GiB --tier directory=/nvme,1TiB)"

    The engine's environment needs SCOPEKV_TICKET_KEYS, VLLM_PLUGINS=scopekv, and for sealed tiers
    SCOPEKV_BROKER_URL (a gateway) and SCOPEKV_BROKER_SECRET (its keys/instance.key).
    """
    try:
        places = {"data_dir": data_dir, "instance": instance}
        click.echo(transfer_config(parse_tiers(texts), places) or "")
    except ConfigError as error:
        raise click.ClickException(str(error)) from error
