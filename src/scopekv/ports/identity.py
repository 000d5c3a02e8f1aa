"""The ports of identity: a provider of signed tokens, and whose account a token is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NewType, Protocol

SigningKey = NewType("SigningKey", object)  # a public key and its one algorithm


class TokenVerifier(Protocol):
    """One identity provider: its public keys, and signatures made with them.

    `head` and `claims` compute; they raise `TokenRefused`. `fetch` is a blocking call of bounded
    time and size, and raises `Unavailable` where the provider gives no list of keys.
    """

    def fetch(self) -> Mapping[tuple[str, str], SigningKey]:
        """Return the provider's keys of now, by key id and algorithm. Unusable ones are left out.

        Two keys of one id and algorithm are both left out: which one was meant?
        """
        ...

    def head(self, token: bytes) -> tuple[str, str]:
        """Return the key id and the algorithm that `token` names, of the allowed algorithms."""
        ...

    def claims(self, token: bytes, key: SigningKey) -> Mapping[str, Any]:
        """Return the claims of `token`, signed with `key`. Nothing in them is checked yet."""
        ...


class Identities(Protocol):
    """Whose account a person of an identity provider has, by `core.identity.identity_key`.

    A link outlives its account, so that whoever was deleted is not let in anew as a stranger.
    """

    def account_uid(self, key: bytes) -> str | None: ...

    def link(self, key: bytes, account_uid: str) -> None:
        """Bind the identity to an account, instead of any other before."""
        ...

    def existing_groups(self, org_uid: str, names: Iterable[str]) -> frozenset[str]:
        """Return which of these names are groups of the organisation."""
        ...
