"""`scopekv audit isolation`: who can reuse whose work, in every tier, tried both ways."""

from __future__ import annotations

import asyncio
import secrets
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import click
import uvloop

from scopekv.audit.isolation import IsolationSettings, IsolationTarget, Place, audit_isolation
from scopekv.audit.isolation.engines import Engines
from scopekv.audit.results import AuditResult
from scopekv.cli.audit.output import Step, progress_bar, show
from scopekv.cli.audit.targets import keyed_target, read_key, registered_target
from scopekv.cli.options import default_data_dir, json_option, registry_options
from scopekv.errors import ConfigError, ScopeKVError

T = TypeVar("T")
INTERRUPTED = 130
WRONG_USE = 64
NOT_PROVED = 2


class NotDone(click.ClickException):
    """An audit that has no result."""

    def __init__(self, words: str, code: int) -> None:
        super().__init__(words)
        self.exit_code = code  # type: ignore[misc]  # click reads it of the instance


@click.command()
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The gateway's own scopekv.toml. [default: the running `scopekv up`]",
)
@registry_options
@click.option("--url", help="Where the gateway is, if not where its file says; or any endpoint.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="ORG/NAME=KEY",
    help="Use these keys (or @FILE), at least two, and make no accounts. With --url.",
)
@click.option("--model", help="Which model to ask for. [default: the first one there is]")
@click.option(
    "--tiers",
    metavar="A,B",
    help=f"Of {', '.join(p for p in Place if p is not Place.ANY)}. [default: all there are]",
)
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), help="Repeats an audit. [default: any]")
@click.option(
    "--quick", is_flag=True, help="Chats alone, changes in the first tier alone, no restarts."
)
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
@json_option
def isolation(
    config: Path | None,
    registry: str | None,
    data_dir: Path | None,
    url: str | None,
    keys: tuple[str, ...],
    model: str | None,
    tiers: str | None,
    seed: int | None,
    quick: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Try every caller against every owner's text, in every tier, and say what came through.

    \b
    scopekv audit isolation                          the running `scopekv up`
    scopekv audit isolation --config scopekv.toml    a gateway and its engines
    scopekv audit isolation --url https://llm.example --key a/x=@x.key --key b/y=@y.key

    Each cell is tried both ways: whoever may reuse a block must hit it, or that others did not
    hit says nothing. With the gateway's file the audit makes organisations, accounts and
    documents named audit-..., attacks with them, and removes them all, also after Ctrl-C. Run it
    where the registry is. With the engines' keys, which that file has, it leaves a block in one
    tier alone, and sends them false tickets; other users lose what engine and host memory had.
    Engines that `scopekv up` runs are restarted once each; --quick restarts none.

    \b
    Exit codes: 0 held; 1 broken; 2 nothing proved, or it could not be carried out;
    64 wrong use; 130 interrupted.
    """
    number = secrets.randbits(32) if seed is None else seed
    try:
        places = _places(tiers)
        given = [read_key(text) for text in keys]
        if given and url is None:
            raise ConfigError("--key needs --url: the endpoint that these keys are for")
    except ConfigError as error:
        raise NotDone(str(error), WRONG_USE) from error
    folder = (data_dir or default_data_dir()).expanduser().absolute()

    async def body(step: Step) -> AuditResult:
        async with AsyncExitStack() as stack:
            if url is not None and given:
                target = await keyed_target(url=url, keys=given, model=model)
            else:
                target = await stack.enter_async_context(
                    registered_target(
                        config=config,
                        registry=registry,
                        data_dir=folder,
                        url=url,
                        model=model,
                        run=f"{number:08x}",
                    )
                )
            settings = await settings_for(target, number, places, quick=quick)
            return await audit_isolation(target, settings, step)

    with progress_bar(quiet=quiet) as step:
        result = interruptible(lambda: body(step))
    show(result, as_json=as_json)
    sys.exit(result.exit_code)


def interruptible(body: Callable[[], Awaitable[T]]) -> T:
    """Run `body` to its end. Ctrl-C and SIGTERM cancel it, let it clean up, and exit with 130.

    A second one is not heard: removing what was made takes a moment, and must not be cut short.
    """

    async def main() -> T:
        working = asyncio.ensure_future(body())
        asked: list[int] = []

        def stop(number: int) -> None:
            if not asked:
                working.cancel()
            asked.append(number)

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)
        found = await working
        if asked:
            raise asyncio.CancelledError
        return found

    try:
        return uvloop.run(main())
    except asyncio.CancelledError:
        raise NotDone("interrupted; what the audit had made is removed", INTERRUPTED) from None
    except ConfigError as error:
        raise NotDone(str(error), WRONG_USE) from error
    except ScopeKVError as error:
        raise NotDone(str(error), NOT_PROVED) from error


async def settings_for(
    target: IsolationTarget, seed: int, places: tuple[Place, ...], *, quick: bool
) -> IsolationSettings:
    """With the block size that the engines say they have."""
    usual = IsolationSettings(seed, places, quick)
    async with Engines(target.engines, settle_seconds_max=usual.settle_seconds_max) as engines:
        sizes = [int(status["block_size"]) for status in await engines.statuses()]
    return IsolationSettings(seed, places, quick, block_size=max(sizes, default=usual.block_size))


def _places(text: str | None) -> tuple[Place, ...]:
    known = {place.value: place for place in Place if place is not Place.ANY}
    names = [name.strip() for name in text.split(",")] if text else []
    wrong = [name for name in names if name not in known]
    if wrong:
        raise ConfigError(f"--tiers has {wrong[0][:40]!r}; it takes {', '.join(known)}")
    return tuple(known[name] for name in names)
