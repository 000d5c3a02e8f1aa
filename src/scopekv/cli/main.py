"""`scopekv`: the command line."""

from __future__ import annotations

from importlib import import_module

import click

from scopekv import __version__

_VERBS = ("up", "gateway", "admin", "tiers", "bench")


class _Verbs(click.Group):
    """Imports a verb when it is asked for, so that help does not wait for a database driver."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_VERBS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _VERBS:
            return None
        command: click.Command = getattr(import_module(f"scopekv.cli.{name}"), name)
        return command


@click.command(
    cls=_Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(__version__, prog_name="scopekv")
def main() -> None:
    """Permission-scoped KV cache sharing for vLLM.

    \b
    scopekv up --demo            engines, gateway and two demo users on this machine
    scopekv admin --help         organisations, users, keys, documents
    scopekv gateway --help       in front of vLLM servers that you run
    scopekv tiers config         host memory, disk and shared stores for your own engines
    scopekv bench article        the worked example: what isolation costs, measured
    """
