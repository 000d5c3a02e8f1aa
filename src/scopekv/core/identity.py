"""Who a signed bearer token (a JWT) is for: from its claims, by the operator's rules.

The signature is checked before, elsewhere; here the claims are read, with `now` as an argument.
Default deny: a claim that is missing, of another type or out of bounds refuses the whole token.
OpenID Connect Core 1.0, section 3.1.3.7; RFC 7519; RFC 8725 (best current practice).
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from scopekv.core.administration import RESERVED_ROLES, Role
from scopekv.core.encoding import encode
from scopekv.core.scopes import NAME_CHARS_MAX, check_name
from scopekv.errors import ConfigError, Misuse, Unauthenticated

SUBJECT_CHARS_MAX = 255  # OpenID Connect Core 1.0, section 2
VALUES_MAX = 1000  # groups or roles in one token
LEEWAY_SECONDS_MAX = 300
KEY_SECONDS_MAX = 366 * 24 * 3600
_TIME_MAX = 2**40
_NAME = re.compile(r"[^A-Za-z0-9._-]")
_MISSING = object()


class IdentityReason(StrEnum):
    """What became of a bearer token. For the log and metrics, never for a client (L10)."""

    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    OTHER_ISSUER = "other_issuer"
    OTHER_AUDIENCE = "other_audience"
    EXPIRED = "expired"
    NOT_YET = "not_yet"
    BAD_CLAIM = "bad_claim"
    NO_ORGANISATION = "no_organisation"  # it is not in the registry, and none may be made
    NOT_LINKED = "not_linked"  # no account is linked, and none may be made
    NAME_TAKEN = "name_taken"  # an account that is not this identity's has the name
    GONE = "gone"  # its account was deleted
    PROVISIONED = "provisioned"


class TokenRefused(Unauthenticated):
    """A bearer token says nothing that counts. Every reason looks the same outside."""

    def __init__(self, reason: IdentityReason) -> None:
        super().__init__(f"bearer token refused: {reason.value}")
        self.reason = reason


class Provision(StrEnum):
    """What a good token of an unknown person makes in the registry."""

    NONE = "none"
    USERS = "users"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """How claims say who calls. A claim is a name, or a JSON Pointer that starts with `/`.

    Either `organisation`, for a provider of one organisation, or `organisation_claim`. `groups`:
    the claim with the caller's groups; "": memberships are the registry's. `roles_claim` and
    `roles`: what the provider calls a role, and the role here; no other value counts.
    `key_seconds`: how long after a token's end the API keys that its user makes may last.
    """

    issuer: str
    audience: str
    organisation: str = ""
    organisation_claim: str = ""
    user_claim: str = "sub"
    groups_claim: str = ""
    roles_claim: str = ""
    roles: Mapping[str, Role] = field(default_factory=dict)
    leeway_seconds: float = 30.0
    key_seconds: int = 30 * 24 * 3600

    def __post_init__(self) -> None:
        if not self.issuer or not self.audience:
            raise ConfigError("[oidc] issuer and audience must be set")
        if bool(self.organisation) == bool(self.organisation_claim):
            raise ConfigError("[oidc] set one of organisation and organisation_claim")
        if not self.user_claim:
            raise ConfigError("[oidc] user_claim is empty; it is `sub` by default")
        if bool(self.roles) != bool(self.roles_claim):
            raise ConfigError("[oidc] roles_claim and [oidc.roles] go together")
        reserved = sorted(set(self.roles.values()) & RESERVED_ROLES)
        if reserved:
            raise ConfigError(
                f"[oidc.roles] gives {', '.join(reserved)}: no token can; grant it to an account "
                "with `scopekv admin role grant`"
            )
        if not 0 <= self.leeway_seconds <= LEEWAY_SECONDS_MAX:
            raise ConfigError(f"[oidc] leeway_seconds takes 0 to {LEEWAY_SECONDS_MAX}")
        if not 0 <= self.key_seconds <= KEY_SECONDS_MAX:
            raise ConfigError(f"[oidc] key_seconds takes 0 to {KEY_SECONDS_MAX}")
        if self.organisation:
            try:
                check_name(self.organisation, "organisation")
            except Misuse as error:
                raise ConfigError(f"[oidc] {error}") from error


@dataclass(frozen=True, slots=True)
class Identity:
    """What one good token says. Counts from `not_before` until `ends_at`, in Unix seconds.

    `groups` is None where the registry's memberships count. Names of groups are not yet compared
    with those that exist.
    """

    issuer: str
    subject: str
    org: str
    name: str
    groups: frozenset[str] | None
    roles: frozenset[str]
    not_before: float
    ends_at: float
    keys_end_at: float

    @property
    def key(self) -> bytes:
        """32 bytes that name this person in this organisation, whatever they are called now.

        Of the issuer too: a subject of another provider is somebody else.
        """
        return identity_key(self.issuer, self.subject, self.org)

    def check_time(self, now: float) -> None:
        """Raises `TokenRefused` before and after its time."""
        if now >= self.ends_at:
            raise TokenRefused(IdentityReason.EXPIRED)
        if now < self.not_before:
            raise TokenRefused(IdentityReason.NOT_YET)


def identity_key(issuer: str, subject: str, org: str) -> bytes:
    """The key of an identity in the registry: a SHA-256, so that it names nobody there."""
    return hashlib.sha256(encode("scopekv/identity/1", issuer, subject, org)).digest()


def identity_of(claims: Mapping[str, Any], rules: ClaimRules, now: float) -> Identity:
    """Read the claims of a token whose signature is good. Raises `TokenRefused`."""
    if claims.get("iss") != rules.issuer:
        raise TokenRefused(IdentityReason.OTHER_ISSUER)
    audience = claims.get("aud")
    if audience != rules.audience and not (
        isinstance(audience, list) and rules.audience in audience
    ):
        raise TokenRefused(IdentityReason.OTHER_AUDIENCE)
    begins = max(_time(claims, "nbf", 0.0), _time(claims, "iat", 0.0)) - rules.leeway_seconds
    ends = _time(claims, "exp", None)
    subject = _subject(claims)
    org = rules.organisation or _text(claims, rules.organisation_claim)
    groups = _values(claims, rules.groups_claim) if rules.groups_claim else None
    roles = _values(claims, rules.roles_claim) if rules.roles_claim else frozenset()
    try:
        check_name(org, "organisation")
    except Misuse as error:
        raise TokenRefused(IdentityReason.BAD_CLAIM) from error
    found = Identity(
        issuer=rules.issuer,
        subject=subject,
        org=org,
        name=account_name(
            _text(claims, rules.user_claim), identity_key(rules.issuer, subject, org)
        ),
        groups=groups,
        roles=frozenset(role.value for name, role in rules.roles.items() if name in roles),
        not_before=begins,
        ends_at=ends + rules.leeway_seconds,
        keys_end_at=ends + rules.key_seconds,
    )
    found.check_time(now)
    return found


def account_name(text: str, key: bytes) -> str:
    """The name of an account: `text` where it is one, else what can be kept of it and a digest.

    `alice@example.com` becomes `alice-example.com-` and eight hex digits of the identity's key, so
    that two texts that look alike without their signs stay apart.
    """
    try:
        return check_name(text, "user")
    except Misuse:
        tail = f"-{key[:4].hex()}"
        kept = _NAME.sub("-", text).lstrip("._-")[: NAME_CHARS_MAX - len(tail)]
        return f"{kept or 'user'}{tail}"


def subject_of(text: str) -> str:
    """Return `text` if it can be the subject of a token, else `Misuse`."""
    if not 1 <= len(text) <= SUBJECT_CHARS_MAX or not (text.isascii() and text.isprintable()):
        raise Misuse(
            f"a subject is 1 to {SUBJECT_CHARS_MAX} printable ASCII characters, as `sub` has them"
        )
    return text


def _subject(claims: Mapping[str, Any]) -> str:
    subject = claims.get("sub")
    try:
        return subject_of(subject if isinstance(subject, str) else "")
    except Misuse as error:
        raise TokenRefused(IdentityReason.BAD_CLAIM) from error


def _time(claims: Mapping[str, Any], name: str, missing: float | None) -> float:
    value = claims.get(name, missing)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TokenRefused(IdentityReason.BAD_CLAIM)
    if isinstance(value, float) and not math.isfinite(value):
        raise TokenRefused(IdentityReason.BAD_CLAIM)
    if not 0 <= value < _TIME_MAX:
        raise TokenRefused(IdentityReason.BAD_CLAIM)
    return float(value)


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = _claim(claims, name)
    if not isinstance(value, str) or not 1 <= len(value) <= SUBJECT_CHARS_MAX:
        raise TokenRefused(IdentityReason.BAD_CLAIM)
    return value


def _values(claims: Mapping[str, Any], name: str) -> frozenset[str]:
    """The texts of a list, or of one text. A claim that is not there is an empty list."""
    value = _claim(claims, name)
    if value is _MISSING or value is None:
        return frozenset()
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, list) or len(values) > VALUES_MAX:
        raise TokenRefused(IdentityReason.BAD_CLAIM)
    if not all(isinstance(one, str) for one in values):
        raise TokenRefused(IdentityReason.BAD_CLAIM)
    return frozenset(values)


def _claim(claims: Mapping[str, Any], name: str) -> Any:
    """A claim by name, or by a JSON Pointer through objects (RFC 6901)."""
    if not name.startswith("/"):
        return claims.get(name, _MISSING)
    value: Any = claims
    for part in name[1:].split("/"):
        step = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(value, Mapping) or step not in value:
            return _MISSING
        value = value[step]
    return value
