"""`scopekv audit timing`: does time tell one party what another one sent?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from scopekv.audit.endpoint import Endpoint
from scopekv.audit.results import AuditResult
from scopekv.audit.timing.asking import Party
from scopekv.audit.timing.audit import TimingAudit
from scopekv.audit.timing.plan import LEVELS, Parties, Sizes
from scopekv.cli.audit.keys import key_option
from scopekv.cli.audit.output import progress_bar, show
from scopekv.cli.audit.proving import WrongUse, proved
from scopekv.cli.options import json_option


@click.command()
@click.option("--url", required=True, help="Of the endpoint, with or without /v1.")
@key_option("victim-key", "Whose prompts are to be found out.", required=True)
@key_option(
    "attacker-key",
    "Of another organisation. Several times: the attacker's many identities. Without it the "
    "victim's key, which makes sense with salts, or to see what is shared within one key.",
    multiple=True,
)
@key_option("neighbour-key", "Of another user in the victim's organisation.")
@key_option(
    "admin-key", "May publish documents for everybody: the audit publishes and withdraws some."
)
@click.option("--victim-salt", default="", help="Sent as cache_salt, to an engine without keys.")
@click.option("--attacker-salt", default="", help="The same for the attacker.")
@click.option("--neighbour-salt", default="", help="The same for the neighbour.")
@click.option(
    "--document",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The exact text of a document published for both.",
)
@click.option("--model", default="", help="[default: the first that the victim may use]")
@click.option("--endpoint", type=click.Choice(["chat", "completions"]), default="chat")
@click.option("--samples", default=250, show_default=True, help="Per arm, of each level.")
@click.option(
    "--attack-samples", default=100, show_default=True, help="Of the other attacks; 0: none."
)
@click.option("--equivalence", is_flag=True, help="Go on until an AUC under 0.55 can be shown.")
@click.option(
    "--prompt-tokens", default=256, show_default=True, help="Letters, about a token each."
)
@click.option("--under-load", default=0, show_default=True, help="Requests under way beside it.")
@click.option(
    "--level",
    "only",
    type=click.Choice(LEVELS),
    multiple=True,
    help="Several times. [default: all levels, and the other attacks]",
)
@click.option("--flood", default=0, show_default=True, help="Prompts; slows everybody down.")
@click.option("--alpha", default=0.001, show_default=True, help="Of any false alarm, all tests.")
@click.option("--seed", default=1, show_default=True, help="Of the order; prompts are always new.")
@json_option
@click.pass_context
def timing(ctx: click.Context, /, url: str, as_json: bool, **options: Any) -> None:
    """Ask an OpenAI-compatible endpoint as a victim and as an attacker, and compare times.

    The victim sends random prompts; the attacker asks for their beginnings, and for what nobody
    sent. If the times differ, the cache tells one what the other sent. The same is tried with the
    attacker's own prompts, where it must show.

    An option's value shows in `ps`: give keys by the environment or as @FILE.

    \b
    scopekv audit timing --url http://gateway:8080 --victim-key @alice.key \\
        --neighbour-key @ann.key --attacker-key @bob.key --equivalence
    scopekv audit timing --url http://vllm:8000 --victim-key @vllm.key \\
        --victim-salt a --attacker-salt b          stock vLLM; without salts it leaks
    scopekv audit timing --url http://gateway:8080 --victim-key @alice.key \\
        --attacker-key @bob.key --admin-key @operator.key --level document

    Ctrl-C ends the asking: what was measured so far is reported, as cut short.
    """
    _check_levels(options)
    document: Path | None = options["document"]
    text = document.read_text("utf-8") if document is not None else ""

    async def body() -> AuditResult:
        with progress_bar(quiet=as_json) as step:
            async with Endpoint(url) as endpoint:
                audit = TimingAudit(
                    endpoint=endpoint,
                    parties=_parties(options),
                    sizes=_sizes(options),
                    seed=options["seed"],
                    step=step,
                    model=options["model"],
                    chat=options["endpoint"] == "chat",
                    document=text,
                )
                return await audit.run()

    found = proved(body, interrupted="interrupted before anything was measured")
    show(found, as_json=as_json)
    ctx.exit(found.exit_code)


def _check_levels(options: dict[str, Any]) -> None:
    """Refuse a level that takes somebody who is not there."""
    only = options["only"]
    if "organisation" in only and not (options["neighbour_key"] or options["neighbour_salt"]):
        raise WrongUse("--level organisation takes --neighbour-key (or --neighbour-salt)")
    if "document" in only and not (options["document"] or options["admin_key"]):
        raise WrongUse("--level document takes --admin-key, or --document with a published text")


def _parties(options: dict[str, Any]) -> Parties:
    keys = options["attacker_key"] or (options["victim_key"],)
    names = ["attacker", *(f"attacker {number}" for number in range(2, len(keys) + 1))]
    salt, near_salt = options["attacker_salt"], options["neighbour_salt"]
    near = options["neighbour_key"] or (options["victim_key"] if near_salt else None)
    return Parties(
        victim=Party("victim", options["victim_key"], options["victim_salt"]),
        attackers=tuple(Party(name, key, salt) for name, key in zip(names, keys, strict=True)),
        neighbour=Party("neighbour", near, near_salt) if near else None,
        admin_key=options["admin_key"],
    )


def _sizes(options: dict[str, Any]) -> Sizes:
    return Sizes(
        samples=options["samples"],
        attack_samples=options["attack_samples"],
        equivalence=options["equivalence"],
        prompt_tokens=options["prompt_tokens"],
        load=options["under_load"],
        flood=options["flood"],
        alpha=options["alpha"],
        only=options["only"],
    )
