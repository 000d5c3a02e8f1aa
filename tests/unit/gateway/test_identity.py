"""From a token to an account of the registry: links, provisioning, and whoever is gone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scopekv.adapters.oidc import OidcVerifier, ProviderSettings
from scopekv.adapters.registry import open_registry
from scopekv.core.administration import Role
from scopekv.core.identity import ClaimRules, Identity, IdentityReason, Provision, TokenRefused
from scopekv.errors import Misuse, NotFound, Unauthenticated
from scopekv.gateway.access import Access
from scopekv.gateway.administration import LOCAL_OPERATOR, Administration
from scopekv.gateway.http.messages import Request
from scopekv.gateway.identity import Identities, IdentitySettings
from scopekv.ports import KeyRecord, Registry
from tests.http.identity_provider import AUDIENCE, IdentityProvider, private_key

pytest.importorskip("jwt", reason="needs the oidc extra")


class Clocks:
    """Wall clock and monotonic clock, set by hand."""

    def __init__(self, wall: float) -> None:
        self.wall, self.steady = wall, 1000.0


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    opened = open_registry(f"sqlite:///{tmp_path}/registry.db")
    yield opened
    opened.close()


@pytest.fixture
def service(registry: Registry) -> Administration:
    return Administration(registry)


class Door:
    """Identities with a provider, a registry and clocks; `enter` is what a request does."""

    def __init__(
        self, provider: IdentityProvider, registry: Registry, provision: str, **rules: Any
    ) -> None:
        self.provider = provider
        self.refused: list[str] = []
        self.clocks = Clocks(0.0)
        claims: dict[str, Any] = {"organisation_claim": "org", "leeway_seconds": 0.0} | rules
        self.identities = Identities(
            OidcVerifier(ProviderSettings(provider.issuer, f"{provider.issuer}/keys")),
            registry,
            IdentitySettings(ClaimRules(provider.issuer, AUDIENCE, **claims), Provision(provision)),
            self.refused.append,
            lambda: self.clocks.wall,
            lambda: self.clocks.steady,
        )

    async def identity(self, token: str) -> Identity:
        return await self.identities.identity(token.encode(), token.encode())

    async def enter(self, token: str) -> KeyRecord:
        found = await self.identity(token)
        record = self.identities.record(found)
        if record is None:
            self.identities.provision(found)
            record = self.identities.record(found)
        assert record is not None
        return record

    def token(self, kid: str = "one", **claims: Any) -> str:
        times = {"iat": int(self.clocks.wall), "exp": int(self.clocks.wall) + 600}
        return self.provider.token(kid, **(times | claims))


async def reason(door: Door, token: str) -> str:
    with pytest.raises(TokenRefused) as refused:
        await door.enter(token)
    return str(refused.value.reason)


async def test_provisioning_makes_what_the_settings_allow(
    provider: IdentityProvider, registry: Registry, service: Administration
) -> None:
    none, users, all_ = (Door(provider, registry, one) for one in Provision)
    assert await reason(none, none.token()) == "not_linked"
    assert await reason(users, users.token()) == "no_organisation"
    service.orgs.create(LOCAL_OPERATOR, "acme")
    assert await reason(none, none.token()) == "not_linked"
    made = (await users.enter(users.token())).principal
    assert (made.org, made.name, set(made.roles)) == ("acme", "alice", {"member"})
    assert (await none.enter(none.token())).principal.uid == made.uid, "linked from now on"
    other = (await all_.enter(all_.token(org="globex"))).principal
    assert (other.org, other.name) == ("globex", "alice")
    assert other.uid != made.uid
    entries: list[Any] = list(service.audit.list(LOCAL_OPERATOR, after=0, limit=100).data)
    told = [(e.action, e.resource.split(" ")[0]) for e in entries if e.reason == "provisioned"]
    assert told == [
        ("account.create", "user:acme/alice"),
        ("org.create", "org:globex"),
        ("account.create", "user:globex/alice"),
    ]


async def test_a_name_that_another_has_is_not_taken_over(
    provider: IdentityProvider, registry: Registry, service: Administration
) -> None:
    """Not of an account made by hand, and not of another person of the provider."""
    service.orgs.create(LOCAL_OPERATOR, "acme")
    hers = service.accounts.create(LOCAL_OPERATOR, "acme", "alice", service=False).uid
    door = Door(provider, registry, "all", user_claim="preferred_username")
    claims = {"sub": "1", "preferred_username": "alice"}
    assert await reason(door, door.token(**claims)) == "name_taken"
    service.accounts.link(LOCAL_OPERATOR, "acme", "alice", issuer=provider.issuer, subject="1")
    assert (await door.enter(door.token(**claims))).principal.uid == hers
    assert await reason(door, door.token(**(claims | {"sub": "2"}))) == "name_taken"
    renamed = await door.enter(door.token(sub="1", preferred_username="alice.b"))
    assert renamed.principal.uid == hers, "the subject says who it is, not the name"


async def test_blocked_stays_blocked_and_deleted_stays_deleted(
    provider: IdentityProvider, registry: Registry, service: Administration
) -> None:
    door = Door(provider, registry, "all")
    first = (await door.enter(door.token())).principal
    accounts = service.accounts
    accounts.set_blocked(LOCAL_OPERATOR, "acme", "alice", service=False, blocked=True)
    assert (await door.enter(door.token())).blocked
    accounts.set_blocked(LOCAL_OPERATOR, "acme", "alice", service=False, blocked=False)
    service.orgs.set_blocked(LOCAL_OPERATOR, "acme", True)
    assert (await door.enter(door.token())).blocked
    assert await reason(door, door.token(sub="ann")) == "no_organisation"
    service.orgs.set_blocked(LOCAL_OPERATOR, "acme", False)
    accounts.delete(LOCAL_OPERATOR, "acme", "alice", service=False)
    assert await reason(door, door.token()) == "gone"
    again = accounts.create(LOCAL_OPERATOR, "acme", "alice", service=False)
    assert await reason(door, door.token()) == "gone", "a new account of the old name is another"
    service.accounts.link(LOCAL_OPERATOR, "acme", "alice", issuer=provider.issuer, subject="alice")
    assert (await door.enter(door.token())).principal.uid == again.uid != first.uid
    service.orgs.delete(LOCAL_OPERATOR, "acme")
    assert await reason(door, door.token()) == "gone"


async def test_groups_and_roles_are_those_of_the_token(
    provider: IdentityProvider, registry: Registry, service: Administration
) -> None:
    service.orgs.create(LOCAL_OPERATOR, "acme")
    for name in ("eng", "law"):
        service.groups.create(LOCAL_OPERATOR, "acme", name)
    door = Door(
        *(provider, registry, "users"),
        groups_claim="groups",
        roles_claim="roles",
        roles={"kv": Role.PUBLISHER},
    )
    found = await door.enter(door.token(groups=["eng", "made-up"], roles=["kv", "operator"]))
    assert found.principal.groups == {"eng"}
    assert found.principal.roles == {"member", "publisher"}
    service.groups.set_member(LOCAL_OPERATOR, "acme", "law", "alice", inside=True)
    later = (await door.enter(door.token(groups=[]))).principal
    assert (set(later.groups), set(later.roles)) == (set(), {"member"})
    plain = Door(provider, registry, "users")
    assert (await plain.enter(plain.token(groups=["eng"]))).principal.groups == {"law"}


async def test_a_clock_that_jumps(provider: IdentityProvider, registry: Registry) -> None:
    door = Door(provider, registry, "all")
    door.clocks.wall = 1_800_000_000.0
    token = door.token()
    assert (await door.enter(token)).expires_at == door.clocks.wall + 600
    for jump, expected in ((600.0, "expired"), (-1.0, "not_yet"), (86400.0, "expired")):
        door.clocks.wall += jump
        assert await reason(door, token) == expected, "though it was verified before"
        door.clocks.wall -= jump
    assert not (await door.enter(token)).blocked


async def test_a_key_that_is_no_longer_listed_ends_the_tokens_it_signed(
    provider: IdentityProvider, registry: Registry
) -> None:
    door = Door(provider, registry, "all")
    token = door.token()
    await door.enter(token)
    provider.keys = {"one": private_key("rsa", 1)}  # another key under the old id
    door.clocks.steady += 300
    await door.enter(token)
    task = door.identities.keys.renew()
    if task:
        await task
    assert await reason(door, token) == "bad_signature"
    assert not (await door.enter(door.token())).blocked


async def test_a_person_who_arrives_many_times_at_once_is_one_account(
    provider: IdentityProvider, registry: Registry, service: Administration
) -> None:
    door = Door(provider, registry, "all")
    door.clocks.wall = time.time()  # as `Access` has it
    access = Access(registry, in_thread=True, identities=door.identities)
    headers = [(b"authorization", b"Bearer " + door.token().encode())]
    request = Request("GET", "/v1/models", "", headers, b"")
    found = await asyncio.gather(*(access.principal(request) for _ in range(12)))
    assert len({principal.uid for principal in found}) == 1
    assert (await access.principal(request)).grant is not None
    entries: list[Any] = list(service.audit.list(LOCAL_OPERATOR, after=0, limit=100).data)
    assert [entry.action for entry in entries] == ["org.create", "account.create"]
    with pytest.raises(Unauthenticated, match="not valid") as refused:
        await access.principal(replace(request, headers=[(b"x-api-key", b"a.b.c")]))
    assert type(refused.value) is Unauthenticated, "the reason stays inside"


async def test_links_are_for_users_that_exist(
    provider: IdentityProvider, registry: Registry, service: Administration
) -> None:
    service.orgs.create(LOCAL_OPERATOR, "acme")
    service.accounts.create(LOCAL_OPERATOR, "acme", "bot", service=True)
    for org, name in (("acme", "nobody"), ("globex", "alice"), ("acme", "bot")):
        with pytest.raises(NotFound):
            service.accounts.link(LOCAL_OPERATOR, org, name, issuer=provider.issuer, subject="1")
    with pytest.raises(Misuse, match="subject"):
        service.accounts.link(LOCAL_OPERATOR, "acme", "bot", issuer=provider.issuer, subject="")


def test_refusals_are_counted_each_and_logged_once_a_minute(
    provider: IdentityProvider, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door(provider, registry, "none")
    for _ in range(5):
        door.identities.note(IdentityReason.EXPIRED)
    assert door.refused == ["expired"] * 5
    assert caplog.text.count("expired") == 1
