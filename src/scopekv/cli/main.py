"""`scopekv`: the command line."""

from __future__ import annotations

import click

from scopekv import __version__
from scopekv.cli.admin import admin
from scopekv.cli.gateway import gateway
from scopekv.cli.up import up


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="scopekv")
def main() -> None:
    """Permission-scoped KV cache sharing for vLLM."""


for _verb in (up, gateway, admin):
    main.add_command(_verb)
