"""Laws of what is sent to providers: a prefix in common is public, or of one scope's own."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.policy import Document, Level, RoleRules
from scopekv.core.scopes import Audience, Narrowing, Principal
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.prompts import Caller
from scopekv.gateway.upstreams import anthropic, openai
from scopekv.gateway.upstreams.cutting import cut
from scopekv.gateway.upstreams.marking import begun
from scopekv.ports import PublishedDocument

SECRET = bytes(range(32))
MANUAL, MEMO = "the manual of the lantern", "a memo for acme alone"
INDEX = DocumentIndex(
    [
        PublishedDocument(Document("doc_1", Audience.parse("public")), "m", MANUAL, 1, None),
        PublishedDocument(Document("doc_2", Audience.parse("org:acme")), "n", MEMO, 1, None),
    ]
)
levels = st.sampled_from(Level)
callers = st.builds(
    lambda org, name, narrowing, rules: Caller(
        Principal(org, name, f"org_{org}", f"usr_{org}_{name}"), narrowing, rules, INDEX
    ),
    st.sampled_from(["acme", "globex"]),
    st.sampled_from(["alice", "bob"]),
    st.sampled_from([Narrowing(), Narrowing(end_user="u"), Narrowing(session="s")]),
    st.builds(RoleRules, levels, levels, levels),
)
texts = st.sampled_from(
    [MANUAL, MEMO, f"{MANUAL}\n\nrules", f"{MANUAL}\n{MEMO}\n\nrules", "rules", "[s:aaaa]\nx", ""]
)
images = st.just([{"type": "image_url", "image_url": {"url": "https://x/y.png"}}])
contents: st.SearchStrategy[Any] = st.one_of(
    texts,
    st.sampled_from([None, []]),
    images,
    st.lists(
        st.fixed_dictionaries(
            {"type": st.just("text"), "text": texts},
            optional={"citations": st.just([{"cited_text": "words of a source"}])},
        ),
        max_size=3,
    ),
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user"]), "content": contents},
        optional={
            "name": st.just("words of a name"),
            "tool_calls": st.just([{"function": {"arguments": "words of a call"}}]),
        },
    ),
    min_size=1,
    max_size=4,
)


def words(content: Any) -> list[str]:
    """All of a content, citations before the text that cites."""
    found: list[str] = []
    for part in [content] if isinstance(content, str) else (content or ()):
        if isinstance(part, str):
            found.append(part)
            continue
        found += [one["cited_text"] for one in part.get("citations", ())]
        found.append(part.get("text", "<image>"))
    return found


def sent(caller: Caller, given: list[dict[str, Any]], *, split: bool) -> tuple[str, set[Any]]:
    """All text as OpenAI gets it, in order, and the scopes that have a part in it.

    A first name is left out: nothing can stand before it, and what is before it is no text.
    """
    body = {"messages": given}
    cuts = cut(openai.chat_pieces(body), caller)
    scopes = begun(cuts)
    markers = {s: s.marker(SECRET, 0) for s, public in scopes.items() if not public}
    made = openai.chat_sent(body, cuts, markers, breakpoints=split)
    flat: list[str] = []
    for message in made["messages"]:
        flat += [message["name"]] if flat and "name" in message else []
        flat += words(message["content"])
        flat += [call["function"]["arguments"] for call in message.get("tool_calls", ())]
    return "".join(flat), {scope for scope, public in scopes.items() if not public}


def blocks_sent(caller: Caller, given: list[dict[str, Any]]) -> tuple[str, set[Any]]:
    """The same for Anthropic, whose messages have a content and nothing beside it."""
    body = {"messages": [{"role": m["role"], "content": m["content"] or ""} for m in given]}
    cuts = cut(anthropic.pieces(body), caller)
    scopes = begun(cuts)
    markers = {s: s.marker(SECRET, 0) for s, public in scopes.items() if not public}
    made = anthropic.sent(body, cuts, markers, ttl=None)
    flat = [word for message in made["messages"] for word in words(message["content"])]
    return "".join(flat), {scope for scope, public in scopes.items() if not public}


@given(callers, callers, messages, st.booleans())
def test_a_common_prefix_goes_no_further_than_the_common_scopes(
    one: Caller, other: Caller, given: list[dict[str, Any]], split: bool
) -> None:
    """The same words of two callers part at the first text that is not of both."""
    mine, theirs = sent(one, given, split=split), sent(other, given, split=split)
    if mine[1] == theirs[1]:
        assert mine == theirs or one.rules != other.rules
    else:
        parted(*mine, *theirs)


@given(callers, callers, messages)
def test_a_common_prefix_at_anthropic_goes_no_further_either(
    one: Caller, other: Caller, given: list[dict[str, Any]]
) -> None:
    mine, theirs = blocks_sent(one, given), blocks_sent(other, given)
    if mine[1] == theirs[1]:
        assert mine == theirs or one.rules != other.rules
    else:
        parted(*mine, *theirs)


def parted(mine: str, my_scopes: set[Any], theirs: str, their_scopes: set[Any]) -> None:
    """Prompts of callers whose scopes differ part before the first words that are not of both."""
    same = [a == b for a, b in zip(mine, theirs, strict=False)]
    common = mine[: same.index(False)] if False in same else mine[: len(same)]
    foreign = {scope.marker(SECRET, 0) for scope in my_scopes ^ their_scopes}
    assert not any(marker in common for marker in foreign)
    if not my_scopes & their_scopes:
        assert common.partition("[s:")[0].replace(MANUAL, "").strip("\n") == ""


@given(callers, messages)
def test_without_markers_the_words_are_what_they_were(
    caller: Caller, given: list[dict[str, Any]]
) -> None:
    body = {"messages": given}
    cuts = cut(openai.chat_pieces(body), caller)
    assert openai.chat_sent(body, cuts, {}, breakpoints=False) == body


@given(callers, messages)
def test_anthropics_blocks_hold_the_same_words_and_at_most_four_breakpoints(
    caller: Caller, given: list[dict[str, Any]]
) -> None:
    given = [message for message in given if message["content"] is not None]
    system = [{"type": "text", "text": MANUAL + "\n\nrules"}]
    body = {"system": system, "messages": given}
    cuts = cut(anthropic.pieces(body), caller)
    made = anthropic.sent(body, cuts, {}, ttl="5m")
    for before, after in zip(
        [system, *(m["content"] for m in given)],
        [made["system"], *(m["content"] for m in made["messages"])],
        strict=True,
    ):
        words = before if isinstance(before, str) else "".join(b.get("text", "") for b in before)
        assert "".join(block.get("text", "") for block in after) == words
    blocks = [*made["system"], *(b for m in made["messages"] for b in m["content"])]
    assert sum("cache_control" in block for block in blocks) <= 4


@given(callers, callers)
def test_markers_are_equal_for_equal_scopes_and_epochs_alone(one: Caller, other: Caller) -> None:
    a, b = one.private, other.private
    assert (a.marker(SECRET, 0) == b.marker(SECRET, 0)) == (a == b)
    assert a.marker(SECRET, 0) != a.marker(SECRET, 1)
    assert a.marker(SECRET, 0) != a.marker(bytes(32), 0)
    assert len(a.marker(SECRET, 0)) == 21
