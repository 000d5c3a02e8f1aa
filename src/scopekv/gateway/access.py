"""Who is calling: from a request's credential to a `Caller`, as the registry says it now.

Read path of the registry. What is kept here is kept under the registry's version counters and
dropped when they move, so no decision outlives a change (L6, case I14).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from scopekv.core.administration import KEY_PREFIX
from scopekv.core.identity import TokenRefused
from scopekv.core.policy import RoleRules
from scopekv.core.scopes import Narrowing, Principal, Scope
from scopekv.errors import Misuse, Unauthenticated, Unavailable
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.http.messages import Request
from scopekv.gateway.identity import Identities
from scopekv.gateway.prompts import Caller
from scopekv.ports import KeyRecord, RegistryReader, Versions

T = TypeVar("T")
KEPT_MAX = 100_000
CALLERS_MAX = 10_000  # names of end users and sessions may be long
TRIES_MAX = 16
log = logging.getLogger("scopekv.access")
_NO_KEY = (
    "no API key in this request: send it as 'Authorization: Bearer sk-scopekv-...' "
    "(an administrator makes one with `scopekv admin key create`)"
)
_BAD_KEY = "this API key or token is not valid: unknown, expired or blocked"


class Access:
    """Authenticates callers against one registry. Refuses while the registry is out of reach.

    `in_thread`: the registry is on a network, so its calls must not hold the event loop.
    """

    def __init__(
        self, registry: RegistryReader, *, in_thread: bool, identities: Identities | None
    ) -> None:
        self._registry = registry
        self._identities = identities
        self._in_thread = in_thread
        self.versions: Versions | None = None  # of all that is kept here
        self._compared_at = -math.inf  # they were the registry's at that time, or later
        self._keys: dict[bytes, KeyRecord] = {}
        self._tokens: dict[bytes, KeyRecord] = {}  # apart: one counts only once it is verified
        self._rules: dict[str, RoleRules] = {}
        self._epochs: dict[Scope, int] = {}
        self._callers: dict[tuple[str, str, str], Caller] = {}
        self._index_lock = asyncio.Lock()
        self._trouble = ""
        self.documents = DocumentIndex(())

    async def principal(self, request: Request, came: float = math.inf) -> Principal:
        """Return the authenticated principal, as of `versions` at that moment.

        Raises `Unauthenticated` or `Unavailable`.

        `came`: when the request was here whole, by `time.monotonic`, if nothing was waited for
        since. Requests that were here when the counters were compared share that comparison.
        """
        credential = _credential(request)
        digest = hashlib.sha256(credential).digest()
        if self._identities and _is_token(credential):
            record = await self._record_of_token(self._identities, credential, digest)
            return _valid(record)
        return await self.holder(digest, came)

    async def holder(self, digest: bytes, came: float = math.inf) -> Principal:
        """The principal whose API key has this SHA-256, now. Raises as `principal` does."""
        if self._in_thread or came > self._compared_at:
            await self.refresh()
        record = self._keys.get(digest)
        if record is None:
            record = await self._kept(self._keys, digest, lambda: self._registry.key(digest))
        return _valid(record)

    async def _record_of_token(
        self, identities: Identities, token: bytes, digest: bytes
    ) -> KeyRecord | None:
        """None for one that is refused, whatever the reason (L10).

        The token first, because that may wait for its provider; then the registry as it is now.
        """
        try:
            identity = await identities.identity(token, digest)
            for _ in range(2):
                await self.refresh()
                record = self._tokens.get(digest) or await self._kept(
                    self._tokens, digest, lambda: identities.record(identity)
                )
                if record is not None:
                    return record
                await asyncio.to_thread(identities.provision, identity)
        except TokenRefused as refused:
            identities.note(refused.reason)
        return None

    async def caller(
        self, principal: Principal, request: Request, body: Mapping[str, Any], versions: object
    ) -> Caller:
        """Return what decisions take. A client's words only narrow, within its own principal.

        `versions`: those that were here when the principal was read; if others are here by now,
        the caller does not stand.
        """
        end_user = _header(request, b"x-scopekv-user") or _text(body.get("user"))
        session = _header(request, b"x-scopekv-session")
        name = (principal.uid, end_user, session)
        known = self._callers.get(name)
        if known is not None and known.principal is principal and known.versions is versions:
            return known
        narrowing = Narrowing(end_user, session)
        rules = self._rules.get(principal.org)
        if rules is None:
            rules = await self._kept(
                self._rules, principal.org, lambda: self._registry.rules(principal.org)
            )
        made = Caller(principal, narrowing, rules, self.documents, versions)
        if versions is self.versions:
            _keep(self._callers, name, made, CALLERS_MAX)
        return made

    async def stands(self, versions: object, *, waited: bool) -> bool:
        """Whether nothing has changed since a caller was read under these `versions`."""
        if self._in_thread or waited:  # else nothing could pass between the questions
            await self.refresh()
        return versions is self.versions

    async def epoch(self, scope: Scope) -> int:
        """Of `versions`, or of a change that is seen by now: then no caller of before stands."""
        owner = scope.epoch_owner
        epoch = self._epochs.get(owner)
        if epoch is None:
            epoch = await self._kept(self._epochs, owner, lambda: self._registry.epoch(owner))
            await self.refresh()  # others write to the registry at any time
        return epoch

    async def audit(
        self,
        principal: Principal,
        action: str,
        resource: str,
        reason: str,
        *,
        outcome: str = "denied",
    ) -> None:
        """Append what a principal tried, and what came of it."""
        actor = f"{principal.org}/{principal.name}"
        await asyncio.to_thread(
            lambda: self._registry.audit(
                actor=actor, action=action, resource=resource, outcome=outcome, reason=reason
            )
        )

    async def refresh(self) -> None:
        """Drop what the registry has changed since it was kept."""
        began = time.monotonic()
        try:
            versions = await self._ask(self._registry.versions)
        except Unavailable as error:
            if str(error) != self._trouble:  # once a change, not at every request
                log.error("requests are refused: %s", error)
            self._trouble = str(error)
            raise
        self._trouble = ""
        before = self.versions
        if versions == before:
            self._compared_at = began
            return
        async with self._index_lock:
            if before is None or versions.documents != before.documents:
                documents = await asyncio.to_thread(lambda: list(self._registry.documents()))
                self.documents = DocumentIndex(documents)
            if before is None or versions.principals != before.principals:
                self._keys.clear()
                self._tokens.clear()
            if before is None or versions.rules != before.rules:
                self._rules.clear()
            if before is None or versions.epochs != before.epochs:
                self._epochs.clear()
            self._callers.clear()
            self.versions, self._compared_at = versions, began

    async def _kept(self, kept: dict[Any, Any], key: Any, call: Callable[[], T]) -> T:
        """Ask, and keep the answer; anew if a change was seen while it was under way (I14)."""
        for _ in range(TRIES_MAX):
            seen = self.versions
            found = await self._ask(call)
            if self.versions is seen:
                if found is not None:
                    _keep(kept, key, found, KEPT_MAX)
                return found
        raise Unavailable("the registry changes faster than it can be read: retry")

    async def _ask(self, call: Callable[[], T]) -> T:
        return await asyncio.to_thread(call) if self._in_thread else call()


def _valid(record: KeyRecord | None) -> Principal:
    """Raises `Unauthenticated` for a record that is none, blocked or over."""
    if record is None or record.blocked:
        raise Unauthenticated(_BAD_KEY)
    if record.expires_at is not None and time.time() >= record.expires_at:
        raise Unauthenticated(_BAD_KEY)
    return record.principal


def _credential(request: Request) -> bytes:
    """The API key: a bearer token, or without one what Anthropic's and Google's clients send."""
    given, named = [], []
    for name, value in request.headers:
        if name == b"authorization":
            given.append(value)
        elif name == b"x-api-key" or name == b"x-goog-api-key":
            named.append(b"bearer " + value)
    found = given or named
    if not found:
        raise Unauthenticated(_NO_KEY)
    if len(found) > 1:
        raise Unauthenticated("two Authorization or x-api-key headers: send one")
    kind, _, key = found[0].partition(b" ")
    if kind.lower() != b"bearer" or not key.strip():
        raise Unauthenticated(_NO_KEY)
    return key.strip()


def _is_token(credential: bytes) -> bool:
    """Whether it is a JWT by its form: an API key has no dot in it."""
    return b"." in credential and not credential.startswith(KEY_PREFIX.encode())


def _header(request: Request, name: bytes) -> str:
    values = request.header_all(name)
    if len(values) > 1:
        raise Misuse(f"two {name.decode()} headers: send one")  # whose would it be?
    return values[0].decode("utf-8", "surrogateescape") if values else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _keep(kept: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    if len(kept) >= most:
        kept.clear()
    kept[key] = value
