"""`scopekv audit store`: what does whoever holds a store learn, and what can they change?"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import click

from scopekv.audit.results import AuditResult
from scopekv.audit.store import StoreSettings, audit_store
from scopekv.cli.audit.keys import key_option, or_empty
from scopekv.cli.audit.output import progress_bar, show
from scopekv.cli.audit.proving import proved
from scopekv.cli.audit.store_target import Given, target_of
from scopekv.cli.options import default_data_dir, json_option, registry_options

_many = partial(click.option, multiple=True, metavar="URL")
_path = click.Path(exists=True, path_type=Path)


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The gateway's scopekv.toml: where it listens, its engines, its registry.",
)
@registry_options
@_many("--store", "stores", help="directory=/path, valkey://... or s3://...")
@click.option("--logs", multiple=True, type=_path, help="A log file, or a folder of them.")
@_many("--metrics", help="A page of metrics; the engines' own are read anyway.")
@_many("--events", help="An engine's event endpoint, ipc:///path.")
@click.option("--gateway", default="", metavar="URL", help="[default: as the config says]")
@key_option(
    "key", "Of any account: the audit sends prompts of its own as this one.", callback=or_empty
)
@key_option(
    "other-key", "Of an account of another organisation, to compare two scopes.", callback=or_empty
)
@click.option("--model", default="", help="[default: the first that the key may use]")
@click.option("--name", "names", multiple=True, help="That must be nowhere. Registry's come too.")
@_many("--engine", "engines", help="[default: those of the config]")
@key_option("engine-key", "The engines' API key.", callback=or_empty)
@click.option("--tamper", is_flag=True, help="Change objects of the audit's own prompts, too.")
@click.option("--revoke", "account", default="", metavar="ORG/NAME", help="The account of --key.")
@key_option(
    "admin-key",
    "Of an operator: reads the gateway's metrics, revokes with --revoke.",
    callback=or_empty,
)
@click.option("--objects", default=2000, show_default=True, help="Read of each store, at most.")
@click.option(
    "--tokens", default=170, show_default=True, help="Of each prompt; more where a tier pays late."
)
@click.option("--seed", default=1, show_default=True, help="Of the dice; prompts are always new.")
@json_option
@click.pass_context
def store(ctx: click.Context, /, as_json: bool, **options: Any) -> None:
    """Read the tiers as a thief would, and say what can be learned.

    Everything is listed and read as it lies there: text, token ids and keys in any spelling; bytes
    that are not random; names that who knows a prompt could compute; sizes, times, modes. Logs,
    metrics and events are searched for the same. With a key, prompts of the audit's own are
    placed first, so that it is known what must not be found.

    --tamper changes objects as whoever can write to the store could: flips, cuts, copies, swaps.
    Each must be a miss with the right answer. It touches objects of its own prompts only, has the
    engines forget their memory meanwhile (they compute more for some seconds), and puts
    everything back; so does Ctrl-C. --revoke also ends what the account of --key has cached.

    \b
    scopekv audit store                                  the embedded deployment's directory tiers
    scopekv audit store --config scopekv.toml --store valkey://10.0.0.5:6379 \\
        --store 's3://bucket/prefix?region=eu-west-1' --logs /var/log/scopekv \\
        --key @alice.key --other-key @bob.key --tamper

    A password of Valkey is taken from SCOPEKV_VALKEY_PASSWORD, credentials of S3 from AWS_*.
    Exit codes: 0 held, 1 broken, 2 nothing proved, 64 wrong use.
    """

    async def body() -> AuditResult:
        target = target_of(_given(options), dict(os.environ))
        settings = StoreSettings(
            seed=options["seed"],
            canary_tokens=options["tokens"],
            objects_max=options["objects"],
            tamper=options["tamper"],
        )
        with progress_bar(quiet=as_json) as step:
            return await audit_store(target, settings, step)

    found = proved(body, interrupted="interrupted before anything was seen; nothing is changed")
    show(found, as_json=as_json)
    ctx.exit(found.exit_code)


def _given(options: dict[str, Any]) -> Given:
    values = {name: options[name] for name in Given.__dataclass_fields__ if name != "data_dir"}
    folder = (options["data_dir"] or default_data_dir()).expanduser().absolute()
    return Given(data_dir=folder, **values)
