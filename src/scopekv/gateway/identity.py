"""Bearer tokens of an identity provider: from the token to an account of the registry.

Read path: signature, claims, link, account; each kept only as long as what it follows from. The
one write is provisioning, where the settings allow it. See docs/identity.md.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from scopekv.core.administration import Action, Role
from scopekv.core.identity import (
    ClaimRules,
    Identity,
    IdentityReason,
    Provision,
    TokenRefused,
    identity_of,
)
from scopekv.core.scopes import Grant
from scopekv.errors import Conflict
from scopekv.gateway.signing_keys import KeyAges, SigningKeys
from scopekv.ports import (
    Account,
    KeyRecord,
    Org,
    Registry,
    RegistryTransaction,
    TokenVerifier,
)

KEPT_MAX = 10_000
LOG_SECONDS = 60.0
ACTOR = "identity provider"
log = logging.getLogger("scopekv.identity")


@dataclass(frozen=True, slots=True)
class IdentitySettings:
    """What counts of a provider's tokens, and what they may make in the registry."""

    rules: ClaimRules
    provision: Provision = Provision.NONE
    ages: KeyAges = field(default_factory=KeyAges)


class Identities:
    """Tells whose a token is. `refused` is told each reason, for a counter."""

    def __init__(
        self,
        verifier: TokenVerifier,
        registry: Registry,
        settings: IdentitySettings,
        refused: Callable[[IdentityReason], None],
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verifier, self._registry, self._settings = verifier, registry, settings
        self._refused, self._clock, self._monotonic = refused, clock, monotonic
        self.keys = SigningKeys(verifier, settings.ages, monotonic)
        self._generation = 0  # of the keys under which these were verified:
        self._verified: dict[bytes, Identity] = {}
        self._logged: dict[IdentityReason, float] = {}

    async def identity(self, token: bytes, digest: bytes) -> Identity:
        """Who the token is for. Raises `TokenRefused`, or `Unavailable` without keys that count.

        `digest` is the token's own; a token that was verified is not verified again while the
        provider's keys stay the same, but its time is looked at every time.
        """
        # What is no token is refused whether or not the provider is in reach.
        head = None if digest in self._verified else self._verifier.head(token)
        await self.keys.fresh()
        if self._generation != self.keys.generation:
            self._verified.clear()
            self._generation = self.keys.generation
        found = self._verified.get(digest)
        if found is not None:
            found.check_time(self._clock())
            return found
        key = await self.keys.key(*(head or self._verifier.head(token)))
        generation = self.keys.generation
        claims = self._verifier.claims(token, key)
        found = identity_of(claims, self._settings.rules, self._clock())
        if generation == self._generation:
            if len(self._verified) >= KEPT_MAX:
                self._verified.clear()
            self._verified[digest] = found
        return found

    def record(self, identity: Identity) -> KeyRecord | None:
        """What the registry says of it; None where an account is to be made. Blocking."""
        with self._registry.read() as view:
            account = _linked(view, identity)
            if account is None:
                self._may_provision(view, identity)
                return None
            principal = account.principal
            org = view.orgs.get(principal.org)
            groups = identity.groups
            if groups is not None:
                groups = view.identities.existing_groups(principal.org_uid, groups)
            grant = Grant(groups, identity.roles, identity.keys_end_at)
            return KeyRecord(
                principal.under(grant),
                identity.ends_at,
                blocked=account.blocked or org is None or org.blocked,
            )

    def provision(self, identity: Identity) -> None:
        """Make the account, and its organisation if need be; audited. Blocking.

        Raises `TokenRefused`. Of two at once the second finds that nothing is left to do.
        """
        try:
            with self._registry.write() as change:
                if _linked(change, identity) is not None:
                    return
                org = self._may_provision(change, identity)
                if org is None:
                    org = change.orgs.create(identity.org)
                    _note(change, Action.ORG_CREATE, f"org:{org.name}")
                account = change.accounts.create(org.uid, identity.name, service=False).principal
                change.accounts.grant(account.uid, Role.MEMBER)
                change.identities.link(identity.key, account.uid)
                _note(
                    change,
                    Action.ACCOUNT_CREATE,
                    f"user:{org.name}/{account.name} ({account.uid}) "
                    f"identity:{identity.key.hex()[:16]}",
                )
        except Conflict as error:
            raise TokenRefused(IdentityReason.NAME_TAKEN) from error

    def note(self, reason: IdentityReason) -> None:
        """Count a refusal, and log it, but not each one of many."""
        self._refused(reason)
        now = self._monotonic()
        if now - self._logged.get(reason, float("-inf")) >= LOG_SECONDS:
            self._logged[reason] = now
            log.warning("bearer tokens are refused: %s (docs/identity.md)", reason.value)

    def _may_provision(self, view: RegistryTransaction, identity: Identity) -> Org | None:
        """The organisation to make the account in; None where it is to be made too."""
        allowed = self._settings.provision
        if allowed is Provision.NONE:
            raise TokenRefused(IdentityReason.NOT_LINKED)
        org = view.orgs.get(identity.org)
        if org is None:
            if allowed is not Provision.ALL:
                raise TokenRefused(IdentityReason.NO_ORGANISATION)
            return None
        if org.blocked:
            raise TokenRefused(IdentityReason.NO_ORGANISATION)
        if view.accounts.get(org.uid, identity.name) is not None:
            raise TokenRefused(IdentityReason.NAME_TAKEN)
        return org


def _linked(view: RegistryTransaction, identity: Identity) -> Account | None:
    """The account of this identity; None if there never was one. A deleted one refuses."""
    uid = view.identities.account_uid(identity.key)
    if uid is None:
        return None
    account = view.accounts.by_uid(uid)
    if account is None:
        raise TokenRefused(IdentityReason.GONE)
    return account


def _note(change: RegistryTransaction, action: Action, resource: str) -> None:
    change.audit.append(
        actor=ACTOR,
        action=action.value,
        resource=resource,
        outcome="allowed",
        reason=IdentityReason.PROVISIONED.value,
    )
