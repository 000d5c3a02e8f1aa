"""Each broken prompt's true cause comes first; clean ones are met with silence."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from scopekv.cli.lint import YOU
from scopekv.core.explaining import Diagnosis, MissCause, diagnose
from scopekv.core.policy import Document
from scopekv.core.scopes import Audience
from scopekv.errors import Misuse
from scopekv.gateway.apis import APIS
from scopekv.gateway.apis.chat import CHAT_API, COMPLETIONS_API
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.explaining import read_prompt
from scopekv.gateway.model_text import read_model_text
from scopekv.gateway.prompts import ModelText
from scopekv.gateway.template import ChatTemplate
from scopekv.ports import PublishedDocument
from scopekv.simulate.model import SimulatedModel
from tests.unit.gateway.broken_prompts import BROKEN, CLEAN, RULES, TALK, Chat, chat
from tests.unit.gateway.more_broken_prompts import BROKEN as MORE
from tests.unit.gateway.more_broken_prompts import agent, called, messages
from tests.unit.gateway.unseen_prompts import UNSEEN

BLOCK = 32
CHAT = CHAT_API.path
ALL = [(row[0], row[1], CHAT, *row[2:]) for row in BROKEN] + MORE + UNSEEN


TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}{% for call in message.tool_calls or [] %}{{ call.function | tojson }}"
    "{% endfor %}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


@pytest.fixture(scope="module")
def text(model: SimulatedModel) -> ModelText:
    """The small model's tokens under a template that shows tools."""
    return read_model_text(
        model.describe() | {"chat_template": TEMPLATE, "tool_template": TEMPLATE}
    )


def compared(text: ModelText, earlier: Chat, later: Chat, path: str = CHAT) -> Diagnosis:
    api = APIS[path]
    one, other = (read_prompt(api, api.check(body), text, YOU) for body in (earlier, later))
    return diagnose(one, other, BLOCK)


@pytest.mark.parametrize(
    ("cause", "api", "earlier", "later"), [row[1:] for row in ALL], ids=[row[0] for row in ALL]
)
def test_the_true_cause_comes_first(
    text: ModelText, cause: MissCause, api: str, earlier: Chat, later: Chat
) -> None:
    found = compared(text, earlier, later, api)
    assert found.causes, "nothing was found"
    first = found.causes[0]
    assert first.code is cause
    assert first.fix
    assert first.tokens_lost > 0
    assert first.token <= found.common_tokens + 1
    assert first.path or cause in (MissCause.BLOCK_ROUNDING, MissCause.TEMPLATE_CHANGED)


@pytest.mark.parametrize(
    ("earlier", "later"), [row[1:] for row in CLEAN], ids=[row[0] for row in CLEAN]
)
def test_it_is_silent_where_nothing_is_wrong(text: ModelText, earlier: Chat, later: Chat) -> None:
    found = compared(text, earlier, later)
    assert found.causes == ()
    assert found.expected_tokens > 0


def test_twenty_five_causes_and_ten_clean_prompts_and_two_sets_that_nobody_tuned_to() -> None:
    assert (len(BROKEN), len(CLEAN), len(MORE), len(UNSEEN)) == (25, 10, 20, 20)


def test_only_blocks_under_the_same_scopes_count(text: ModelText) -> None:
    one, other = chat(RULES, *TALK[:3]), chat(RULES, *TALK[:5])
    both = compared(text, one, other)
    apart = compared(text, one | {"user": "u1"}, other | {"user": "u2"})
    same = compared(text, one | {"user": "u1"}, other | {"user": "u1"})
    assert same.expected_tokens == both.expected_tokens
    assert 0 < apart.expected_tokens < both.expected_tokens, "the organisation's, no end user's"
    assert apart.common_tokens == both.common_tokens


def test_a_place_is_named_as_the_request_wrote_it(text: ModelText) -> None:
    long, short = agent("Seoul", TALK[0], *TALK[1:4]), agent("Seoul", "[]", *TALK[1:4])
    (result,) = compared(text, long, short, "/v1/messages").causes
    assert result.path == "$.messages[2].content[0].content"
    one, other = called('{"a": "one of two", "b": 2}'), called('{"b": 2, "a": "one of two"}')
    (arguments,) = compared(text, one, other).causes
    assert arguments.path == "$.messages[2].tool_calls"
    rules = messages("Today is Monday. " + RULES, "hi"), messages("Today is Friday. " + RULES, "hi")
    (system,) = compared(text, *rules, "/v1/messages").causes
    assert system.path == "$.system"


def test_a_date_that_the_template_writes_before_tools_and_questions(text: ModelText) -> None:
    def dated(day: int) -> ModelText:
        template = ChatTemplate(f"Today is the {day}th of May. {TEMPLATE}", {}, {})
        return replace(text, template=template, tool_template=template)

    for tools in ({}, {"tools": [{"type": "function", "function": {"name": "f"}}]}):
        one = read_prompt(CHAT_API, chat(RULES, "What is new?", **tools), dated(6), YOU)
        other = read_prompt(CHAT_API, chat(RULES, "Anything else?", **tools), dated(7), YOU)
        assert [cause.code for cause in diagnose(one, other, BLOCK).causes] == [
            MissCause.TEMPLATE_CHANGED
        ]


def test_documents_of_others_cost_no_time_that_could_tell(text: ModelText) -> None:
    """One that the caller may not read is not even compared (L10)."""
    one = PublishedDocument(
        Document("doc_1", Audience.parse("org:others")), "m", "secret words", 1, None
    )
    caller = replace(YOU, documents=DocumentIndex([one]))
    object.__setattr__(one, "text", None)  # any look at it would raise
    api = APIS[CHAT]
    assert read_prompt(api, api.check(chat(RULES, "hi")), text, caller).documents == ()


COMPLETIONS = COMPLETIONS_API.path


def test_ids_are_read_as_ids(text: ModelText) -> None:
    """As the text that they say, and under no scope but the caller's own."""
    before, after = (f"It is 10:{minute} now. {RULES}" for minute in (15, 16))
    one, other = ({"model": "m", "prompt": given} for given in (before, after))
    said = [read_prompt(COMPLETIONS_API, body, text, YOU) for body in (one, other)]
    ids = [{"model": "m", "prompt": list(prompt.token_ids)} for prompt in said]
    first, second = (read_prompt(COMPLETIONS_API, body, text, YOU) for body in ids)
    assert [list(prompt.token_ids) for prompt in (first, second)] == [
        body["prompt"] for body in ids
    ]
    found, told = diagnose(first, second, BLOCK), compared(text, one, other, COMPLETIONS)
    assert found.causes == told.causes
    assert [cause.code for cause in found.causes] == [MissCause.TIME]
    assert [scope for _, scope in first.segments] == [YOU.private]
    assert compared(text, ids[0], ids[0], COMPLETIONS).causes == ()


@pytest.mark.parametrize("prompt", ["a text", [5, 6, 7]])
def test_a_list_of_one_prompt_is_that_prompt(text: ModelText, prompt: str | list[int]) -> None:
    bare, listed = ({"model": "m", "prompt": given} for given in (prompt, [prompt]))
    found = [read_prompt(COMPLETIONS_API, body, text, YOU).token_ids for body in (bare, listed)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "prompt",
    [[], ["one", "two"], [[1, 2], [3]], [1, "two"], [True, False], [-1], [1 << 32], [[]], [[[1]]]],
)
def test_several_prompts_and_what_is_none_are_refused(text: ModelText, prompt: list[Any]) -> None:
    with pytest.raises(Misuse, match="only one prompt"):
        read_prompt(COMPLETIONS_API, {"model": "m", "prompt": prompt}, text, YOU)
