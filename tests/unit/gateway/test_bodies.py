"""A body goes on as its client wrote it only where nothing of it must go."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scopekv.gateway.apis import APIS
from scopekv.gateway.bodies import STRIPPED, Written, engine_body, read_body, stripped

SALT = "ab" * 32
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
texts = st.text(max_size=8)
parts = st.fixed_dictionaries(
    {"type": st.just("text"), "text": texts}, optional={"uuid": texts, "cache_salt": texts}
)
messages = st.lists(
    st.fixed_dictionaries({"role": st.just("user"), "content": texts | st.lists(parts)}), min_size=1
)
more = st.dictionaries(
    st.sampled_from(["temperature", "metadata", "n", 'a"\\é', "uuid"]), st.integers(0, 9) | texts
)
named = st.dictionaries(st.sampled_from(sorted(STRIPPED - {"user"})), texts, max_size=2)


@given(
    path=st.sampled_from(PATHS),
    messages=messages,
    more=more,
    named=named,
    stream=st.booleans(),
    escaped=st.booleans(),
    indent=st.none() | st.integers(0, 2),
)
def test_what_goes_on_as_written_says_what_would_be_written_anew(
    path: str,
    messages: list[Any],
    more: dict[str, Any],
    named: dict[str, str],
    stream: bool,
    escaped: bool,
    indent: int | None,
) -> None:
    text = {"messages": messages, "prompt": "p", "input": messages}
    body = {"model": "m", **named, **text, **more, "stream": stream}
    content = json.dumps(body, ensure_ascii=escaped, indent=indent).encode()
    api, read = APIS[path], read_body(content)
    clean = stripped(read, api)
    written = Written(content, read)
    sent = engine_body(clean, api, salt=SALT, ticket=None, tokens=None, written=written)
    anew = engine_body(clean, api, salt=SALT, ticket=None, tokens=None)
    assert json.loads(sent) == json.loads(anew)
    assert json.loads(sent)["cache_salt"] == SALT


def test_what_is_not_stripped_goes_on_byte_for_byte() -> None:
    api = APIS["/v1/chat/completions"]
    content = (
        b' \n{ "model":"m", "messages":[{"role":"user","content":"\\u00e9 1.0"}], "top_p":1.0}'
    )
    read = read_body(content)
    written = Written(content, read)
    sent = engine_body(
        stripped(read, api), api, salt=SALT, ticket=None, tokens=None, written=written
    )
    assert sent == b'{"cache_salt":"%b",' % SALT.encode() + content.lstrip()[1:]


def test_what_names_requests_sessions_or_workers_of_sglang_is_the_servers() -> None:
    """Its chat and completion requests take these besides vLLM's (SGLang's openai/protocol.py)."""
    theirs = (
        *("rid", "session_params", "extra_key", "bootstrap_host", "bootstrap_port"),
        *("bootstrap_room", "routed_dp_rank", "disagg_prefill_dp_rank"),
    )
    api = APIS["/v1/chat/completions"]
    asked = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    body = read_body(json.dumps(asked | dict.fromkeys(theirs, "another's")).encode())
    assert stripped(body, api) == asked


def test_a_member_given_twice_is_stripped_each_time() -> None:
    api = APIS["/v1/chat/completions"]
    for name in sorted(STRIPPED - {"user"}):
        content = b'{"%b":"a","model":"m","messages":[{"role":"user","content":"x"}],"%b":"b"}' % (
            name.encode(),
            name.encode(),
        )
        read = read_body(content)
        sent = engine_body(
            *(stripped(read, api), api),
            salt=SALT,
            ticket=None,
            tokens=None,
            written=Written(content, read),
        )
        assert sent.count(b'"%b"' % name.encode()) == (name == "cache_salt")
        assert json.loads(sent)["cache_salt"] == SALT
