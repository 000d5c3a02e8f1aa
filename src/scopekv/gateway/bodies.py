"""Reading what a client sent, and writing what the engine gets.

Everything a client could use to reach another's cache is taken out; all else passes untouched.
"""

from __future__ import annotations

from typing import Any

import msgspec

from scopekv.core.tickets import USES_MAX
from scopekv.core.values import light_value
from scopekv.errors import Misuse
from scopekv.gateway.apis.api import Api
from scopekv.gateway.tokens import Tokens

STRIPPED = frozenset(
    {
        "cache_salt",
        "kv_transfer_params",
        "ec_transfer_params",
        "kv_hints",
        "vllm_xargs",
        "session_id",
        "request_id",
        "priority",
        "user",
        "prompt_cache_key",
        "safety_identifier",
        "data_parallel_rank",
        # SGLang's: another's request or session, a part of the cache key, a worker to fetch from.
        *("rid", "session_params", "extra_key"),
        *("bootstrap_host", "bootstrap_port", "bootstrap_room"),
        *("routed_dp_rank", "disagg_prefill_dp_rank"),
    }
)


@light_value(repr=False)
class Written:
    """A body as its client wrote it, and as it was read."""

    content: bytes
    body: dict[str, Any]


_decoder = msgspec.json.Decoder()
_PARTS = ("content", "output")  # of a message, and of a tool's result in Responses
N_MAX = 128


def read_body(data: bytes) -> dict[str, Any]:
    """Return the JSON object of a request. Raises `Misuse` with the place of the fault."""
    try:
        body = _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        place = str(error) if isinstance(error, msgspec.DecodeError) else "not UTF-8 or too deep"
        raise Misuse(f"the body is not valid JSON: {place}") from error
    if not isinstance(body, dict):
        raise Misuse("the body must be a JSON object")
    if not isinstance(body.get("model"), str) or not body["model"]:
        raise Misuse("model is missing: name one of GET /v1/models")
    stream = body.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise Misuse("stream must be true or false")
    if not isinstance(body.get("user"), str | None):
        raise Misuse("user must be a string")  # ignored, it would narrow nothing
    return body


def sequences(body: dict[str, Any]) -> int:
    """How many sequences the engine will start for this request. Raises `Misuse` over the limit."""
    if body.get("use_beam_search"):
        # vLLM starts a request per beam and step and gives it no ticket: nothing would be shared.
        raise Misuse("use_beam_search is not available here; use n with temperature")
    count = 1
    for name in ("n", "best_of"):
        value = body.get(name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= N_MAX:
            raise Misuse(f"{name} must be a whole number from 1 to {N_MAX}")
        count = max(count, value)
    prompts = body.get("prompt")
    if isinstance(prompts, list) and prompts and not isinstance(prompts[0], int):
        if len(prompts) > N_MAX:
            raise Misuse(f"a request takes at most {N_MAX} prompts, not {len(prompts)}")
        count *= len(prompts)
    if count > USES_MAX:
        raise Misuse(f"n times prompts is {count}; a request may start {USES_MAX} sequences")
    return count


def stripped(body: dict[str, Any], api: Api) -> dict[str, Any]:
    """The client's body without what only the server may set; a stream always counts usage."""
    clean = body
    if not STRIPPED.isdisjoint(body):
        clean = {key: value for key, value in body.items() if key not in STRIPPED}
    for name in ("messages", "input"):
        messages = clean.get(name)
        if isinstance(messages, list) and any(map(_has_parts, messages)):
            without = [_without_names_of_media(message) for message in messages]
            clean = {**clean, name: without}
    return api.engine(clean)


def _has_parts(message: Any) -> bool:
    return isinstance(message, dict) and (
        isinstance(message.get("content"), list) or isinstance(message.get("output"), list)
    )


def _without_names_of_media(message: Any) -> Any:
    """A message whose parts carry no `uuid`: vLLM takes it for the identity of the media.

    With another's `uuid` a client would get what the other sent, or put its own in that place.
    """
    if not _has_parts(message):
        return message
    return {
        name: [_without_name(part) for part in value]
        if name in _PARTS and isinstance(value, list)
        else value
        for name, value in message.items()
    }


def _without_name(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return {key: value for key, value in part.items() if key != "uuid"}


def engine_body(
    clean: dict[str, Any],
    api: Api,
    *,
    salt: str,
    ticket: str | None,
    tokens: Tokens | None,
    written: Written | None = None,
) -> bytes:
    """The body for an engine. With tokens, the text stays here: the engine reads the ids.

    `written`: what `clean` was made from.
    """
    if written is not None and ticket is None and tokens is None:
        same = _with_more(written, clean, salt)
        if same is not None:
            return same
    body: dict[str, Any] = {**clean, "cache_salt": salt}
    parameters = [b'"scopekv":"', ticket.encode("ascii"), b'"'] if ticket is not None else []
    if tokens is not None:
        body = api.with_ids(body, tokens)
        if api.ids_in_parameters:
            parameters += [b"," if parameters else b"", b'"prompt_token_ids":[', tokens.json, b"]"]
    if parameters:  # joined once: the ids of a long prompt are 50 KB
        body["kv_transfer_params"] = msgspec.Raw(b"".join([b"{", *parameters, b"}"]))
    return msgspec.json.encode(body)


def _with_more(written: Written, clean: dict[str, Any], salt: str) -> bytes | None:
    """The client's own bytes with the salt and what else is new; None where something of them goes.

    A text of 40 KB is then not written anew. Of a member that is given twice the last one counts,
    here as in engines; one that must go is in `written.body` however often it is given.
    """
    body, more = written.body, {"cache_salt": salt}
    if clean is not body:
        for name, value in clean.items():
            if name not in body:
                more[name] = value
            elif value is not body[name]:
                return None
        if len(clean) - len(more) + 1 != len(body):
            return None
    content = written.content
    return b"%b,%b" % (msgspec.json.encode(more)[:-1], content[content.index(b"{") + 1 :])
