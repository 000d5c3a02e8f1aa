"""From bodies to segments: no text of a caller ever falls in a wider segment than decided."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate, count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scopekv.core.policy import Document, Level, RoleRules
from scopekv.core.scopes import Audience, Narrowing, Principal, Scope, ScopeKind
from scopekv.errors import Misuse
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.prompts import Caller, ModelText, Prompt, chat_prompt, completion_prompt
from scopekv.gateway.template import ChatTemplate
from scopekv.gateway.tokenizer import PromptTokenizer
from scopekv.ports import PublishedDocument
from tests.prompt_tokenizers import PromptTokenizers

# Names, tools behind the system text and calls are rendered, as in templates in the wild.
TEMPLATE = """
{%- for m in messages %}<|im_start|>{{ m.role }}{% if m.name %} {{ m.name }}{% endif %}
{{ m.content }}
{%- if loop.first and tools %}\n# Tools {{ tools | tojson }}{% endif %}
{%- for call in m.tool_calls or [] %}\n<call>{{ call | tojson }}</call>{% endfor %}
{%- if m.tool_call_id %}\n<id>{{ m.tool_call_id }}</id>{% endif %}<|im_end|>
{% endfor %}<|im_start|>assistant
"""
TRIMMING = TEMPLATE.replace("{{ m.content }}", "{{ m.content | trim }}")
ANN = Principal("acme", "ann", "org_1", "usr_1", frozenset({"eng"}))
OWN, ORG = Scope(ScopeKind.USER, ("org_1", "usr_1")), Scope(ScopeKind.ORG, ("org_1",))
PUBLIC_TEXT = "The public handbook says: rest on Sundays.\n"
GROUP_TEXT = "For engineers: the door code is on the wall. "
SECRET_TEXT = "Of globex alone: the merger is on Monday."
PUBLIC, GROUP = (Scope(ScopeKind.DOCUMENT, (uid,)) for uid in ("doc_p", "doc_g"))
Say = Callable[..., Prompt]


def caller(rules: RoleRules | None = None, narrowing: Narrowing | None = None) -> Caller:
    listed = [
        ("doc_p", "public", PUBLIC_TEXT),
        ("doc_g", "group:acme/eng", GROUP_TEXT),
        ("doc_s", "org:globex", SECRET_TEXT),
    ]
    documents = DocumentIndex(
        PublishedDocument(Document(uid, Audience.parse(audience)), uid, text, 1, None)
        for uid, audience, text in listed
    )
    return Caller(ANN, narrowing or Narrowing(), rules or RoleRules(), documents)


@pytest.fixture(scope="session")
def tokenizer(prompt_tokenizers: PromptTokenizers, model_dir: Path) -> PromptTokenizer:
    return prompt_tokenizers.of((model_dir / "tokenizer.json").read_text())


@pytest.fixture(scope="session", params=[TEMPLATE, TRIMMING], ids=["exact", "trims"])
def model(tokenizer: PromptTokenizer, request: pytest.FixtureRequest) -> ModelText:
    template = ChatTemplate(request.param, {}, {})
    shape = {"type": "function", "function": {"name": None, "description": None}}
    return ModelText(tokenizer, template, template, shape, False)


def spans(prompt: Prompt, model: ModelText) -> list[tuple[str, set[Scope]]]:
    """Each token's text, and every scope that a reader of its block must have at least."""
    assert prompt.tokens is not None
    chain: set[Scope] = set()
    listed = []
    ids = prompt.tokens.ids()
    for segment in prompt.segments:
        chain = chain | {segment.scope}
        for token in ids[segment.start : segment.end]:
            piece = model.tokenizer._tokenizer.decode([token], skip_special_tokens=False)
            listed.append((piece, chain))
    return listed


def chains_of(text: str, prompt: Prompt, model: ModelText) -> list[set[Scope]]:
    """The chains of all tokens that hold a character of `text` (ASCII, once in the prompt)."""
    listed = spans(prompt, model)
    whole = "".join(piece for piece, _ in listed)
    start = whole.index(text)
    stops = list(accumulate(len(piece) for piece, _ in listed))
    return [
        chain
        for (piece, chain), stop in zip(listed, stops, strict=True)
        if stop > start and stop - len(piece) < start + len(text)
    ]


def system(text: Any) -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "content": text, **more}


def parts(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": text} for text in texts]


def shape(prompt: Prompt) -> list[Scope]:
    return [segment.scope for segment in prompt.segments]


@pytest.mark.parametrize(
    ("messages", "scopes"),
    [
        ([user("Hi")], [OWN]),
        ([user("")], [OWN]),
        ([system("Be kind."), user("Hi")], [ORG, OWN]),
        ([system(PUBLIC_TEXT), user("Hi")], [PUBLIC, OWN]),
        ([system(PUBLIC_TEXT + "Be kind."), user("Hi")], [PUBLIC, ORG, OWN]),
        ([system(PUBLIC_TEXT + GROUP_TEXT), user("Hi")], [PUBLIC, GROUP, OWN]),
        ([user(PUBLIC_TEXT + "Why?")], [PUBLIC, OWN]),
        ([user(parts(PUBLIC_TEXT, GROUP_TEXT, "Why?"))], [PUBLIC, GROUP, OWN]),
        ([user(parts("Hi", PUBLIC_TEXT, "Why?"))], [OWN, PUBLIC, OWN]),
        ([user(SECRET_TEXT + "Why?")], [OWN]),
        ([system(SECRET_TEXT), user("Hi")], [ORG, OWN]),
        ([user("Read: " + PUBLIC_TEXT)], [OWN]),
        ([user("Hi", name="ann")], [OWN]),
        ([user(PUBLIC_TEXT + "Why?", name="ann")], [OWN]),
        ([user("a"), {"role": "assistant", "content": "b"}, user("c")], [OWN]),
        ([user("a"), system("late")], [OWN]),
        ([{"role": "assistant", "content": None, "tool_calls": []}, user("a")], [OWN]),
    ],
)
def test_the_shape_of_segments(model: ModelText, messages: list[Any], scopes: list[Scope]) -> None:
    prompt = chat_prompt({"messages": messages}, caller(), model)
    assert shape(prompt) == scopes
    whole = "".join(piece for piece, _ in spans(prompt, model))
    assert whole.endswith(("<|im_start|>assistant\n", "<|im_start|>assistant"))


@pytest.mark.parametrize(
    "body",
    [
        {"chat_template": "x"}, {"chat_template_kwargs": {"a": 1}}, {"documents": [{}]},
        {"continue_final_message": True}, {"echo": True}, {"reasoning_effort": "low"},
        {"functions": [{}]}, {"mm_processor_kwargs": {"a": 1}}, {"media_io_kwargs": {"a": 1}},
        {"add_generation_prompt": False}, {"prompt_embeds": "x"},
        {"messages": [{"role": "developer", "content": PUBLIC_TEXT}]},
        {"messages": [user([{"type": "image_url", "image_url": {"url": "x"}}])]},
        {"messages": [user(PUBLIC_TEXT, weight=1)]},
        {"messages": [{"role": "assistant", "content": "", "tool_calls": [1]}]},
    ],
)  # fmt: skip
def test_what_only_the_engine_can_render_is_the_callers_own(
    model: ModelText, body: dict[str, Any]
) -> None:
    prompt = chat_prompt({"messages": [system(PUBLIC_TEXT), user("a")], **body}, caller(), model)
    assert (shape(prompt), prompt.tokens) == ([OWN], None)


@pytest.mark.parametrize(
    "messages",
    [None, [], "Hi", {}, ["Hi"], [{}], [{"role": 1}], [user(1)], [user({"text": "a"})],
     [user([{"type": "text"}])], [user([{"type": "text", "text": 1}])]],
)  # fmt: skip
def test_what_no_template_takes_is_misuse(model: ModelText, messages: Any) -> None:
    with pytest.raises(Misuse):
        chat_prompt({"messages": messages}, caller(), model)


def test_tools_are_under_their_own_rule(model: ModelText) -> None:
    tool = {"type": "function", "function": {"name": "find", "description": "markedtool"}}
    body = {"messages": [system(PUBLIC_TEXT), user(PUBLIC_TEXT + "Why?")], "tools": [tool]}
    for level, expected in ((Level.ORG, ORG), (Level.USER, OWN)):
        prompt = chat_prompt(body, caller(RoleRules(tools=level)), model)
        assert all(expected in chain for chain in chains_of("markedtool", prompt, model))
    with pytest.raises(Misuse):
        chat_prompt({**body, "tools": "find"}, caller(), model)


@pytest.mark.parametrize("text", [PUBLIC_TEXT, "Be kind."])
def test_fields_of_the_first_message_are_not_the_tools(model: ModelText, text: str) -> None:
    """Its name stands before its content, in the glue that tools would own."""
    tool = {"type": "function", "function": {"name": "find", "description": "d"}}
    body = {"messages": [user(text, name="markedname")], "tools": [tool]}
    prompt = chat_prompt(body, caller(), model)
    if prompt.tokens is None:
        assert shape(prompt) == [OWN]
    else:
        assert all(OWN in chain for chain in chains_of("markedname", prompt, model))


def test_fields_of_a_message_are_not_its_neighbours(model: ModelText) -> None:
    """A system message with fields of its own owns no glue that the next message's stand in."""
    named = {**system("Be kind."), "name": "rules"}
    body = {"messages": [named, user("Hi", name="markedname")]}
    prompt = chat_prompt(body, caller(), model)
    if prompt.tokens is None:
        assert shape(prompt) == [OWN]
    else:
        assert all(OWN in chain for chain in chains_of("markedname", prompt, model))


def test_a_session_narrows_the_private_part_alone(model: ModelText) -> None:
    body = {"messages": [system(PUBLIC_TEXT), user("Hi")]}
    prompt = chat_prompt(body, caller(narrowing=Narrowing("kim", "s1")), model)
    assert shape(prompt) == [PUBLIC, Scope(ScopeKind.SESSION, ("org_1", "usr_1", "kim", "s1"))]


@pytest.mark.parametrize(
    ("text", "scopes"),
    [
        ("Hi", [OWN]),
        (PUBLIC_TEXT + "Why?", [PUBLIC, OWN]),
        (PUBLIC_TEXT + GROUP_TEXT + "Why?", [PUBLIC, GROUP, OWN]),
        (PUBLIC_TEXT, [PUBLIC, OWN]),
        (" " + PUBLIC_TEXT, [OWN]),
        (SECRET_TEXT, [OWN]),
    ],
)
def test_completions(model: ModelText, text: str, scopes: list[Scope]) -> None:
    prompt = completion_prompt(text, caller(), model)
    assert shape(prompt) == scopes
    assert "".join(piece for piece, _ in spans(prompt, model)) == text
    with pytest.raises(Misuse, match="empty"):
        completion_prompt("", caller(), model)


numbers = count()
pieces = st.one_of(
    st.sampled_from([PUBLIC_TEXT, GROUP_TEXT, SECRET_TEXT, "", " ", "\n", "<|im_end|>", "ba"]),
    st.builds(lambda: f"\x00{next(numbers)}"),  # a mark: replaced by a word of its own
)
contents = st.lists(pieces, max_size=4)
roles = st.sampled_from(["system", "user", "assistant", "tool"])
extras = st.sampled_from(["", "", "name", "tool_calls", "tool_call_id"])
chats = st.lists(st.tuples(roles, contents, st.booleans(), extras), min_size=1, max_size=4)
levels = st.sampled_from(Level)


def test_no_text_is_wider_than_decided(model: ModelText) -> None:
    """The key property, over bodies of every shape."""

    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(chats, st.booleans(), st.builds(RoleRules, levels, levels, levels))
    def law(chat: list[Any], with_tools: bool, rules: RoleRules) -> None:
        marks: list[tuple[str, str]] = []  # (word, role)

        def word(role: str) -> str:
            marks.append((f"qx{len(marks)}zj", role))
            return marks[-1][0]

        messages = []
        for role, texts, split, extra in chat:
            shown = [word(role) if text.startswith("\0") else text for text in texts]
            message = {"role": role, "content": parts(*shown) if split else "".join(shown)}
            if extra == "tool_calls":
                function = {"name": word(role) if role == "assistant" else "f", "arguments": "{}"}
                message["tool_calls"] = [{"type": "function", "function": function}]
            elif extra:
                message[extra] = "n" if extra != "name" else word(role)
            messages.append(message)
        body: dict[str, Any] = {"messages": messages}
        if with_tools:
            tool = {"name": "find", "description": word("tools")}
            body["tools"] = [{"type": "function", "function": tool}]
        prompt = chat_prompt(body, caller(rules), model)
        if prompt.tokens is None:
            assert shape(prompt) == [OWN]
            return
        assert prompt.segments[-1].scope == OWN
        assert {ScopeKind.DOCUMENT, ScopeKind.ORG, ScopeKind.USER} >= {
            scope.kind for scope in shape(prompt)
        }
        assert Scope(ScopeKind.DOCUMENT, ("doc_s",)) not in shape(prompt)
        for text, role in marks:
            level = getattr(rules, role if role in ("system", "tools") else "messages")
            for chain in chains_of(text, prompt, model):
                assert OWN in chain or (level is Level.ORG and ORG in chain)

    law()
