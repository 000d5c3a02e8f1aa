"""`scopekv`: the command line."""

from __future__ import annotations

import click

from scopekv import __version__
from scopekv.cli.verbs import LazyGroup

_VERBS = (
    *("up", "gateway", "admin", "tiers", "bench", "audit", "simulate", "calibrate"),
    *("explain", "lint", "doctor"),
)


@click.group(
    cls=LazyGroup,
    verbs={name: f"scopekv.cli.{name}:{name}" for name in _VERBS},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
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
    scopekv explain REQUEST_ID   why a request of yours was not read from the cache
    scopekv lint FILE            the same for prompts that were not sent yet
    """
