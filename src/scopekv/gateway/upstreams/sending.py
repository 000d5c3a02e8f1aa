"""From a request as read to what is sent to a provider."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from scopekv.core.encoding import encode
from scopekv.core.policy import PartRole
from scopekv.core.scopes import Scope
from scopekv.errors import Misuse
from scopekv.gateway.apis.chat import CHAT_API
from scopekv.gateway.apis.messages import COUNT_TOKENS, MESSAGES
from scopekv.gateway.apis.responses import RESPONSES
from scopekv.gateway.bodies import STRIPPED
from scopekv.gateway.http.messages import Headers
from scopekv.gateway.prompts import Caller
from scopekv.gateway.reading import Job
from scopekv.gateway.upstreams import anthropic, openai, references
from scopekv.gateway.upstreams.cutting import Cuts, cut, scope_of
from scopekv.gateway.upstreams.marking import begun
from scopekv.gateway.upstreams.settings import Credential, UpstreamKind, UpstreamSettings

CHAT = CHAT_API.path
PATHS = {UpstreamKind.OPENAI: (CHAT, RESPONSES), UpstreamKind.ANTHROPIC: (MESSAGES, COUNT_TOKENS)}
_PIECES = {
    CHAT: openai.chat_pieces,
    RESPONSES: openai.responses_pieces,
    MESSAGES: anthropic.pieces,
    COUNT_TOKENS: anthropic.pieces,
}
ANTHROPIC_VERSION = b"2023-06-01"  # where the client names none
KEY_BYTES = 16
# Of a client's headers, only these: an idempotency key, say, would get another's answer, because
# the workspace's key is the same. `metadata` names who asks.
_PASSED = frozenset((b"accept", b"user-agent", b"anthropic-version", b"anthropic-beta"))
_PASSED_PREFIX = b"x-stainless-"
_NOT_SENT = STRIPPED | {"metadata"}


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """A body cut into the text of each scope. `scopes`: all that may need a marker, with whether
    each is a public document's.
    """

    body: dict[str, Any]
    cuts: Cuts
    scopes: Mapping[Scope, bool]


def plan(job: Job) -> Plan:
    """Check and cut. Raises `Misuse`. Cost: one pass over the text."""
    references.check(job.body)
    if not isinstance(job.body.get("prompt_cache_key"), str | None):
        raise Misuse("prompt_cache_key must be a string")
    cuts = cut(_PIECES[job.api.path](job.body), job.caller)
    beside = {scope_of(role, job.caller): False for role in (PartRole.TOOLS, PartRole.SYSTEM)}
    return Plan(job.body, cuts, beside | begun(cuts))


def sent_body(
    job: Job, made: Plan, upstream: UpstreamSettings, epochs: Mapping[Scope, int], secret: bytes
) -> bytes:
    """The body for the provider, with the markers of these epochs."""
    markers = {
        scope: scope.marker(secret, epochs[scope])
        for scope, public in made.scopes.items()
        if not (public and upstream.share_public and epochs[scope] == 0)
    }
    tools = markers[scope_of(PartRole.TOOLS, job.caller)]
    schema = markers[scope_of(PartRole.SYSTEM, job.caller)]
    body = {key: value for key, value in made.body.items() if key not in _NOT_SENT}
    path = job.api.path
    if upstream.kind is UpstreamKind.ANTHROPIC:
        body = anthropic.beside_marked(body, tools, schema)
        ttl = upstream.ttl if upstream.sets_breakpoints else None
        return msgspec.json.encode(anthropic.sent(body, made.cuts, markers, ttl=ttl))
    body = openai.beside_marked(body, tools, schema)
    if made.body.get("prompt_cache_key"):
        body["prompt_cache_key"] = _cache_key(job.caller, made.body["prompt_cache_key"], secret)
    rebuilt = openai.chat_sent if path == CHAT else openai.responses_sent
    body = rebuilt(body, made.cuts, markers, breakpoints=upstream.sets_breakpoints)
    if path == CHAT:  # new accounts at OpenAI store chats unless they are told not to
        body = CHAT_API.engine(body) | {"store": False}
    return msgspec.json.encode(body)


def sent_headers(job: Job, upstream: UpstreamSettings, credential: Credential) -> Headers:
    """What of the client's may pass, and our key."""
    key = credential.api_key.encode("ascii")
    passed = [
        (name, value)
        for name, value in job.headers
        if name in _PASSED or name.startswith(_PASSED_PREFIX)
    ]
    headers = [(b"content-type", b"application/json"), *passed]
    if upstream.kind is UpstreamKind.OPENAI:
        return [*headers, (b"authorization", b"Bearer " + key)]
    if not any(name == b"anthropic-version" for name, _ in headers):
        headers.append((b"anthropic-version", ANTHROPIC_VERSION))
    return [*headers, (b"x-api-key", key)]


def _cache_key(caller: Caller, given: str, secret: bytes) -> str:
    """A client's key for the provider's routing, mixed with whose it is (L2)."""
    whose = caller.private
    message = encode("scopekv/cache_key/1", whose.kind.value, *whose.path, given)
    return hmac.digest(secret, message, "sha256")[:KEY_BYTES].hex()
