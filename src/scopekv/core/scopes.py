"""Scopes: who may reuse a block; audiences: who may read a document.

A scope is separate from where bytes are stored. Its real name stays in the gateway and the
registry; everything else sees `ScopeId`, a keyed pseudonym, because engines publish block keys
in events and may log them.
"""

from __future__ import annotations

import base64
import hmac
import re
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NewType

from scopekv.core.encoding import encode
from scopekv.errors import Misuse

ScopeId = NewType("ScopeId", bytes)  # 16 bytes, opaque
Pseudonym = NewType("Pseudonym", bytes)  # 16 bytes, opaque

SCOPE_ID_BYTES = 16
MARKER_BYTES = 10
NAME_CHARS_MAX = 64
FREE_NAME_CHARS_MAX = 512
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")


class ScopeKind(StrEnum):
    """The kinds of scope, widest first."""

    DOCUMENT = "document"
    ORG = "org"
    USER = "user"
    END_USER = "end_user"
    SESSION = "session"


class AudienceKind(StrEnum):
    PUBLIC = "public"
    ORG = "org"
    GROUP = "group"
    USER = "user"


_PATH_LENGTH = {
    ScopeKind.DOCUMENT: 1,  # document id
    ScopeKind.ORG: 1,  # organisation uid
    ScopeKind.USER: 2,  # organisation uid, principal uid
    ScopeKind.END_USER: 3,  # organisation uid, principal uid, end user as the principal names them
    ScopeKind.SESSION: 4,  # organisation uid, principal uid, end user or "", session
}
_AUDIENCE_LENGTH = {
    AudienceKind.PUBLIC: 0,
    AudienceKind.ORG: 1,
    AudienceKind.GROUP: 2,
    AudienceKind.USER: 2,
}


def check_name(name: str, what: str) -> str:
    """Return `name` if it can name an organisation, group, user or document, else `Misuse`."""
    if not _NAME.match(name):
        raise Misuse(
            f"{what} {name[:80]!r} is not a name: 1 to {NAME_CHARS_MAX} letters, digits, "
            "'.', '_' or '-', starting with a letter or digit"
        )
    return name


@dataclass(frozen=True, slots=True)
class Scope:
    """Who may reuse a block. `path` is made of uids, which are never given out twice."""

    kind: ScopeKind
    path: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.path) != _PATH_LENGTH[self.kind]:
            raise Misuse(f"a {self.kind} scope has {_PATH_LENGTH[self.kind]} names")

    @property
    def epoch_owner(self) -> Scope:
        """The scope whose epoch counts: a user's epoch covers its end users and sessions."""
        if self.kind in (ScopeKind.END_USER, ScopeKind.SESSION):
            return Scope(ScopeKind.USER, self.path[:2])
        return self

    def id(self, secret: bytes) -> ScopeId:
        """The opaque name of this scope under the deployment's `secret` (32 bytes)."""
        return ScopeId(_pseudonym(secret, "scopekv/scope/1", self.kind.value, *self.path))

    def salt(self, secret: bytes, epoch: int) -> str:
        """The fail-safe `cache_salt`: 64 hex digits, for an engine without the plugin.

        vLLM takes 1 to 128 characters without `@ / \\ NUL`.
        """
        message = encode("scopekv/salt/1", epoch, self.kind.value, *self.path)
        return hmac.digest(secret, message, "sha256").hex()

    def marker(self, secret: bytes, epoch: int) -> str:
        """What begins this scope's first text at a provider: 80 bits as 16 letters and digits.

        Who does not know the secret cannot write another scope's marker into a text of its own.
        """
        message = encode("scopekv/marker/1", epoch, self.kind.value, *self.path)
        found = hmac.digest(secret, message, "sha256")[:MARKER_BYTES]
        return f"[s:{base64.b32encode(found).decode('ascii').lower()}]\n"


@dataclass(frozen=True, slots=True)
class Audience:
    """Who may read a document: `public`, `org:acme`, `group:acme/eng`, `user:acme/alice`."""

    kind: AudienceKind
    path: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if len(self.path) != _AUDIENCE_LENGTH[self.kind]:
            raise Misuse(f"an audience of kind {self.kind} has {_AUDIENCE_LENGTH[self.kind]} names")
        for name in self.path:
            check_name(name, "audience part")

    @classmethod
    def parse(cls, text: str) -> Audience:
        """Read the written form; `Misuse` says what the four forms are."""
        kind, _, rest = text.partition(":")
        try:
            return cls(AudienceKind(kind), tuple(rest.split("/")) if rest else ())
        except (ValueError, Misuse) as error:
            raise Misuse(
                f"audience {text[:120]!r} is not one of: public, org:ORG, group:ORG/GROUP, "
                "user:ORG/USER"
            ) from error

    def __str__(self) -> str:
        return f"{self.kind}:{'/'.join(self.path)}" if self.path else str(self.kind)


@dataclass(frozen=True, slots=True)
class Grant:
    """What a bearer token adds to its account, for as long as the token counts.

    `groups` replace the registry's memberships; None: those count. `keys_end_at`: when the API
    keys that its user makes end at the latest, in Unix seconds.
    """

    groups: frozenset[str] | None
    roles: frozenset[str]
    keys_end_at: float


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller, as the registry knows it. Nothing in it comes from the request.

    Names are for people and audiences. Scopes are made of uids, so that a user or organisation
    created anew under an old name inherits nothing.
    """

    org: str
    name: str
    org_uid: str
    uid: str
    groups: frozenset[str] = field(default_factory=frozenset)
    roles: frozenset[str] = field(default_factory=frozenset)
    service: bool = False
    grant: Grant | None = None  # of the token it called with, if it did; counted in above

    def under(self, grant: Grant | None) -> Principal:
        """This account, called for with a token that says `grant`."""
        if grant is None:
            return self
        groups = self.groups if grant.groups is None else grant.groups
        return replace(self, groups=groups, roles=self.roles | grant.roles, grant=grant)

    def pseudonym(self, secret: bytes) -> Pseudonym:
        return Pseudonym(_pseudonym(secret, "scopekv/principal/1", self.org_uid, self.uid))


@dataclass(frozen=True, slots=True)
class Narrowing:
    """What a client may ask for: less sharing, inside its own organisation. Never more.

    `end_user` and `session` are free text of the client; they are mixed with the caller's own
    organisation and name, so no value reaches another caller's scope.
    """

    end_user: str = ""
    session: str = ""

    def __post_init__(self) -> None:
        for what, value in (("end user", self.end_user), ("session", self.session)):
            if len(value) > FREE_NAME_CHARS_MAX:
                raise Misuse(
                    f"{what} has {len(value)} characters; the limit is {FREE_NAME_CHARS_MAX}"
                )


def private_scope(principal: Principal, narrowing: Narrowing) -> Scope:
    """The narrowest scope of this caller: session, else end user, else user."""
    owner = (principal.org_uid, principal.uid)
    if narrowing.session:
        return Scope(ScopeKind.SESSION, (*owner, narrowing.end_user, narrowing.session))
    if narrowing.end_user:
        return Scope(ScopeKind.END_USER, (*owner, narrowing.end_user))
    return Scope(ScopeKind.USER, owner)


def _pseudonym(secret: bytes, domain: str, *path: str) -> bytes:
    return hmac.digest(secret, encode(domain, *path), "sha256")[:SCOPE_ID_BYTES]
