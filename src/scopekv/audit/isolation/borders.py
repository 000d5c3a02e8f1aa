"""A token that begins in a public document and ends in private text: whose is it?

A document ends in a word that grows with what follows, so that the grown word is one token. It is
made so long that this token ends a block. Where the token counted as the document's, a stranger
who guesses the word would read the block that the owner left behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from scopekv.audit.endpoint import CHAT, Endpoint
from scopekv.audit.isolation.asking import Asking
from scopekv.audit.isolation.cells import Cell, Outcome
from scopekv.audit.isolation.matrix import Caller
from scopekv.audit.isolation.target import Place
from scopekv.audit.isolation.texts import Prompt

_WORDS = (
    *(("transport", "ation"), ("inform", "ation"), ("develop", "ment"), ("govern", "ment")),
    *(("under", "stand"), ("water", "fall"), ("comput", "er"), ("pass", "word")),
)
_LENGTHS = 64  # letters that are tried before the word, until a block ends with it


@dataclass(frozen=True, slots=True)
class Border:
    """`tokens`: of the chat that are alike whether the word grows or not."""

    document: str
    grown: str
    tokens: int


async def try_border(asking: Asking, owner: Caller, stranger: Caller) -> list[Cell]:
    """None where this tokenizer makes no such token of the words that are known here."""
    await asking.alone(Place.ANY)
    border = await _border(asking)
    if border is None:
        return []
    await asking.document("public", border.document)
    prompt = _prompt(asking, border.grown)
    await asking.ask(owner, prompt)
    tried = await asking.ask(stranger, prompt)
    back = await asking.ask(owner, prompt)

    cell = partial(
        asking.cell,
        group="border.after_a_document",
        owner=owner,
        proved=back.outcome(border.tokens) is Outcome.HIT,
        beyond=border.tokens,
    )
    return [cell(tried, caller=stranger, allowed=False), cell(back, caller=owner, allowed=True)]


def _prompt(asking: Asking, text: str) -> Prompt:
    return Prompt(CHAT, asking.target.model, text, asking.texts.text())


async def _border(asking: Asking) -> Border | None:
    """Asks an engine how it reads texts, until one fits."""
    engine, block = asking.engines.known[0], asking.settings.block_size
    start = asking.texts.text()
    async with Endpoint(engine.url) as door:
        model = (await door.models(engine.api_key))[0]

        async def ids(prompt: Prompt) -> Sequence[int]:
            body = {"model": model, "messages": prompt.body()["messages"]}
            reply = await door.call("POST", "/tokenize", body, key=engine.api_key)
            found = reply.body.get("tokens") if isinstance(reply.body, dict) else None
            return found if isinstance(found, list) else ()

        for stem, rest in _WORDS:
            for more in range(_LENGTHS):
                document = f"{start} {'a ' * more}{stem}"
                alone = Prompt(CHAT, model, document, "x")
                found = await ids(alone), await ids(replace(alone, head=document + rest))
                same = _common(*found)
                if len(found[0]) != len(found[1]):
                    break  # the word does not grow into one token
                if (same + 1) % block == 0:
                    return Border(document, document + rest, same)
    return None


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
