"""Where two prompts part, in the order of the prompt; a conversation that grows parts nowhere."""

from __future__ import annotations

import pytest

from scopekv.core.explaining import Divergence, Kind, Member, Piece, ReadPrompt, divergence

BLOCK = 4
HEAD = (Kind.TEMPLATE, "<s>", [1])
TOOLS = (Kind.TOOLS, "tools: look", [2, 3, 4, 5])
SYSTEM = (Kind.SYSTEM, "be kind", list(range(10, 20)))
USER = (Kind.USER, "hi", list(range(20, 30)))
ANSWER = (Kind.ASSISTANT, "hello", list(range(30, 40)))
END = (Kind.TEMPLATE, "<a>", [9])
Part = tuple[Kind, str, list[int]]


def prompt(*parts: Part, model: str = "m", tools: tuple[str, ...] = ()) -> ReadPrompt:
    pieces, ids = [], []
    for kind, text, tokens in parts:
        ids += tokens
        pieces.append(Piece(kind, "", text, len(ids)))
    return ReadPrompt(model, tuple(pieces), ids, [{"name": name} for name in tools])


def other(part: Part) -> Part:
    """The same kind of piece with another text, which parts in its third token."""
    kind, text, tokens = part
    return kind, text + "!", [*tokens[:2], *(99 for _ in tokens[2:])]


FIRST = prompt(HEAD, TOOLS, SYSTEM, USER, END, tools=("look",))


@pytest.mark.parametrize(
    ("later", "member"),
    [
        (prompt(HEAD, other(TOOLS), SYSTEM, USER, END, tools=("find",)), Member.TOOLS),
        (prompt(HEAD, SYSTEM, USER, END), Member.TOOLS),
        (prompt(HEAD, other(TOOLS), other(SYSTEM), USER, END, tools=("find",)), Member.TOOLS),
        (prompt(HEAD, other(TOOLS), SYSTEM, USER, END, tools=("look",)), Member.OTHER),
        (prompt(HEAD, TOOLS, other(SYSTEM), USER, END, tools=("look",)), Member.SYSTEM),
        (prompt(HEAD, TOOLS, USER, END, tools=("look",)), Member.SYSTEM),
        (prompt(HEAD, TOOLS, SYSTEM, other(USER), END, tools=("look",)), Member.MESSAGES),
        (prompt(other(HEAD), TOOLS, SYSTEM, USER, END, tools=("look",), model="n"), Member.MODEL),
    ],
)
def test_the_first_member_that_differs(later: ReadPrompt, member: Member) -> None:
    found = divergence(FIRST, later, BLOCK)
    assert found is not None
    assert found.member is member
    assert found.missed_tokens > 0


@pytest.mark.parametrize(
    "later",
    [
        FIRST,
        prompt(HEAD, TOOLS, SYSTEM, USER, END, ANSWER, USER, END, tools=("look",)),
        prompt(HEAD, TOOLS, SYSTEM, END, tools=("look",)),
        prompt(HEAD, TOOLS, SYSTEM, USER, END, tools=("look", "not shown")),
    ],
)
def test_a_prompt_that_goes_on_parts_from_nothing(later: ReadPrompt) -> None:
    assert divergence(FIRST, later, BLOCK) is None


def test_a_date_that_the_template_writes_is_none_of_the_members() -> None:
    dated = (Kind.TEMPLATE, "Tuesday", [7]), (Kind.TEMPLATE, "Friday", [8])
    one, two = (prompt(day, SYSTEM, USER, END) for day in dated)
    assert divergence(one, two, BLOCK) == Divergence(Member.OTHER, 20)


def test_what_was_missed_is_in_whole_blocks_and_after_what_both_begin_with() -> None:
    earlier = prompt(HEAD, SYSTEM, USER, END)  # 22 tokens, of which an engine reads 20 again
    later = prompt(HEAD, SYSTEM, other(USER), END)  # parts at token 13: 12 are read
    assert divergence(earlier, later, BLOCK) == Divergence(Member.MESSAGES, 8)
