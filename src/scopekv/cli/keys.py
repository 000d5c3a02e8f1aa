"""`scopekv keys`: the deployment's key files, and the two of them that engines need."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click

from scopekv.cli.options import data_dir_option, default_data_dir
from scopekv.compose import INSTANCE_KEY, ROOT_KEY, TICKET_KEYS, WRAP_KEY, make_keys
from scopekv.errors import ConfigError


@click.command()
@click.option(
    "--for-engines",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="PATH",
    help="Also put there what engines on other hosts need: nothing that can sign or name.",
)
@data_dir_option
def keys(for_engines: Path | None, data_dir: Path | None) -> None:
    """Make the deployment's key files, where they are missing. Shows no key.

    A gateway's first start makes them too; where gateways and engines are on several hosts or in
    containers, they are made before and handed to each. What is there already stays as it is.

    \b
    scopekv keys --data-dir gateway-keys --for-engines engine-keys
    """
    folder = (data_dir or default_data_dir()).expanduser().absolute()
    try:
        make_keys(folder)
        for name in (ROOT_KEY, WRAP_KEY, INSTANCE_KEY, TICKET_KEYS):
            click.echo(str(folder / name))
        if for_engines is not None:
            for_engines.mkdir(parents=True, exist_ok=True, mode=0o700)
            for name, mode in ((INSTANCE_KEY, 0o600), (TICKET_KEYS, 0o644)):
                click.echo(str(_copied(folder / name, for_engines, mode)))
    except (ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _copied(source: Path, folder: Path, mode: int) -> Path:
    """A copy that is there whole or not at all, and never readable by more than `mode` says."""
    target, unfinished = folder / source.name, folder / f".{source.name}.new"
    unfinished.unlink(missing_ok=True)
    handle = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    with os.fdopen(handle, "wb") as written, source.open("rb") as read:
        shutil.copyfileobj(read, written)
    unfinished.chmod(mode)
    unfinished.replace(target)
    return target
