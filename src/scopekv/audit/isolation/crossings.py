"""Boundaries that are no caller's: between adapters, and between two lives of an engine."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from scopekv.audit.endpoint import CHAT
from scopekv.audit.isolation.asking import Asking
from scopekv.audit.isolation.cells import Cell, Outcome
from scopekv.audit.isolation.matrix import Caller
from scopekv.audit.isolation.target import EngineAccess, Place
from scopekv.audit.isolation.texts import Prompt


async def try_adapter(asking: Asking, adapter: str, owner: Caller, stranger: Caller) -> list[Cell]:
    """One text under the base model, then under an adapter: by a stranger, then by its owner.

    An adapter's blocks hold other numbers, so even the owner must not read across (case I5).
    """
    await asking.alone(Place.ANY)
    base = Prompt(CHAT, asking.target.model, asking.texts.text(), asking.texts.tail())
    adapted = replace(base, model=adapter)
    await asking.ask(owner, base)
    tried = [(caller, await asking.ask(caller, adapted)) for caller in (stranger, owner)]
    back = [await asking.ask(owner, prompt) for prompt in (adapted, base)]
    beyond = asking.beyond[CHAT, adapter]
    proved = all(answer.outcome(beyond) is Outcome.HIT for answer in back)

    cell = partial(
        asking.cell, group=f"adapters.{adapter}", owner=owner, proved=proved, beyond=beyond
    )
    return [
        *(cell(answer, caller=caller, model=adapter, allowed=False) for caller, answer in tried),
        cell(back[0], caller=f"{owner}, again", model=adapter, allowed=True),
        cell(back[1], caller=f"{owner}, again", allowed=True),
    ]


async def try_restart(
    asking: Asking, engine: EngineAccess, owner: Caller, stranger: Caller
) -> list[Cell]:
    """Fill, restart the engine, let a stranger ask first; then the owner fills and must hit."""
    if engine.restart is None:
        return []
    number = asking.engines.known.index(engine)
    await asking.alone(Place.ANY)
    prompt = Prompt(CHAT, asking.target.model, asking.texts.text(), asking.texts.tail())
    await asking.engines.only(number)
    await asking.ask(owner, prompt)
    await asking.engines.only(None)  # meanwhile the others serve whoever else asks
    await engine.restart()
    await asking.engines.only(number)
    tried = await asking.ask(stranger, prompt)
    await asking.ask(owner, prompt)
    back = await asking.ask(owner, prompt)
    proved = back.outcome(asking.beyond[CHAT, asking.target.model]) is Outcome.HIT
    cell = partial(asking.cell, group=f"restart.{engine.name}", owner=owner, proved=proved)
    return [cell(tried, caller=stranger, allowed=False), cell(back, caller=owner, allowed=True)]
