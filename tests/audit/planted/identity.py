"""Planted faults of what a block is made under: tags, scope names, narrowing, token borders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scopekv.core import blocks
from scopekv.core.blocks import Fingerprint
from scopekv.core.chains import Tag
from scopekv.core.policy import Level, PartRole, RoleRules
from scopekv.core.scopes import Narrowing, Scope, ScopeId, ScopeKind
from scopekv.gateway import access, bodies, relay, tokenizer
from scopekv.gateway.apis import Api
from scopekv.gateway.http.messages import Request
from scopekv.gateway.tokenizer import PromptTokenizer
from scopekv.simulate.plugin import SimulatedPlugin
from tests.audit.planted.switch import Planted, all_of, patched, switch

_block_tag, _scope_id, _scope_salt = blocks.block_tag, Scope.id, Scope.salt
_header, _engine_body, _chunk = access._header, bodies.engine_body, PromptTokenizer._chunk
Links = Sequence[tuple[ScopeId, int]]


def _scopeless(namespace: Fingerprint, scopes: Links, adapter: bytes = b"") -> str:
    del scopes
    return _block_tag(namespace, [], adapter)


def _epochless(namespace: Fingerprint, scopes: Links, adapter: bytes = b"") -> str:
    return _block_tag(namespace, [(scope, 0) for scope, _ in scopes], adapter)


def _no_purge(plugin: SimulatedPlugin, tags: frozenset[Tag]) -> int:
    del plugin, tags
    return 0


def _epoch_ignored() -> Any:
    """A purge would hide it, unless it is late: here it never comes."""
    return all_of(
        patched(blocks, block_tag=_epochless),
        patched(SimulatedPlugin, purge=_no_purge),
    )


def _orgless_scope(scope: Scope) -> Scope:
    """An end user or session is whoever has that name."""
    if scope.kind in (ScopeKind.END_USER, ScopeKind.SESSION):
        return Scope(scope.kind, ("", "", *scope.path[2:]))
    return scope


def _orgless_id(scope: Scope, secret: bytes) -> ScopeId:
    return _scope_id(_orgless_scope(scope), secret)


def _orgless_salt(scope: Scope, secret: bytes, epoch: int) -> str:
    return _scope_salt(_orgless_scope(scope), secret, epoch)


def _unkeyed_id(scope: Scope, secret: bytes) -> ScopeId:
    """Whoever knows the names makes the same ids."""
    return _scope_id(scope, bytes(len(secret)))


def _no_session(request: Request, name: bytes) -> str:
    return "" if name == b"x-scopekv-session" else _header(request, name)


def _no_end_user(end_user: str, session: str) -> Narrowing:
    del end_user
    return Narrowing("", session)


def _org_wide(rules: RoleRules, role: PartRole) -> Level:
    del rules, role
    return Level.ORG


def _ends_after(encoding: Any, ends: Sequence[int]) -> tuple[int, ...]:
    """As `ends_in`, but a token that reaches over an end still counts before it."""
    return tuple(sum(start < end for start, _ in encoding.offsets) for end in ends)


def _uncapped(
    _self: PromptTokenizer, _text: str, _ids: Any, _stretches: Any, _ends: Any, counts: Any
) -> tuple[int, ...]:
    return tuple(counts)


def _straddling() -> Any:
    """The cap at what a document's tokens are alone would hide it."""
    return all_of(
        patched(tokenizer, ends_in=_ends_after),
        patched(PromptTokenizer, _capped=_uncapped, _chunk=_unsplit_chunk),
    )


def _unsplit_chunk(self: PromptTokenizer, *args: Any) -> Any:
    """Words would be cut at the border before it is asked where the tokens end."""
    words, self._words = self._words, None
    try:
        return _chunk(self, *args)
    finally:
        self._words = words


def _salt_passed_on() -> Any:
    """Only an engine without the plugin goes by salts alone."""
    return all_of(
        patched(bodies, STRIPPED=bodies.STRIPPED - {"cache_salt"}),
        patched(relay, engine_body=_body_with_clients_salt),
    )


def _body_with_clients_salt(clean: dict[str, Any], api: Api, *, salt: str, **rest: Any) -> bytes:
    return _engine_body(clean, api, salt=str(clean.get("cache_salt") or salt), **rest)


PLANTED = {
    "scope_left_out_of_hash": Planted(
        "block hashes cover no scope: equal tokens are anybody's",
        "isolation.engine.user",
        switch(blocks, block_tag=_scopeless),
    ),
    "epoch_ignored": Planted(
        "block hashes cover no epoch, and a purge is late",
        "isolation.changes.user_revoked",
        _epoch_ignored,
    ),
    "salt_passed_through": Planted(
        "a client's cache_salt reaches the engine",
        "isolation.fields.cache_salt",
        _salt_passed_on,
        plugin=False,
    ),
    "end_users_without_org": Planted(
        "an end user is one scope in all organisations",
        "isolation.engine.end_user",
        switch(Scope, id=_orgless_id, salt=_orgless_salt),
    ),
    "session_ignored": Planted(
        "X-ScopeKV-Session narrows nothing",
        "isolation.engine.session",
        switch(access, _header=_no_session),
    ),
    "end_user_ignored": Planted(
        "the end user of a service account narrows nothing",
        "isolation.engine.end_user",
        switch(access, Narrowing=_no_end_user),
    ),
    "messages_shared_in_org": Planted(
        "what users write is shared in their organisation, whatever the rules say",
        "isolation.engine.user",
        switch(RoleRules, level=_org_wide),
    ),
    "straddling_token_public": Planted(
        "a token that begins in a document and ends in private text counts as the document's",
        "isolation.border",
        _straddling,
    ),
    "scope_names_unkeyed": Planted(
        "opaque names of scopes are made without the deployment's secret",
        "store.names",
        switch(Scope, id=_unkeyed_id),
    ),
}
