"""Blocks of the simulator are one block exactly where the core says so."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.errors import Misuse
from scopekv.simulate.fleet.identity import Identities, Isolation, Layers, Tenant, layers_of
from scopekv.simulate.traces.request import TracedRequest

BLOCK, ORGS, USERS = 2, 2, 4
SECRET, NAMESPACE = bytes(32), Fingerprint(bytes(32))
TENANTS = [Tenant(user, user // 2) for user in range(USERS)]


def core_names(tokens: tuple[int, ...], tenant: Tenant, public: int, org: int) -> list[bytes]:
    """What the engine makes of a prompt: hashes of parent, tokens and the core's own tags.

    Of whole blocks alone: an engine keeps no others.
    """
    scopes = [
        (public, Scope(ScopeKind.DOCUMENT, ("manual",))),
        (org, Scope(ScopeKind.ORG, (str(tenant.org),))),
        (None, Scope(ScopeKind.USER, (str(tenant.org), str(tenant.user)))),
    ]
    ends, kept, before = [], [], 0
    for end, scope in scopes:
        if end is None or end > before:
            kept.append((scope.id(SECRET), 0))
            if end is not None:
                ends.append(end)
                before = end
    tagger = BlockTagger(NAMESPACE, ends, kept)
    found, parent = [], b""
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        block = tokens[start : start + BLOCK]
        tag = tagger.tag(start, start + len(block))
        parent = hashlib.sha256(parent + repr((block, tag)).encode()).digest()
        found.append(parent)
    return found


prompts = st.lists(
    st.tuples(
        st.lists(st.integers(0, 1), min_size=1, max_size=9).map(tuple), st.sampled_from(TENANTS)
    ),
    min_size=2,
    max_size=8,
)


@given(prompts, st.integers(0, 5), st.integers(0, 4))
def test_identity_is_that_of_the_core(
    sent: list[tuple[tuple[int, ...], Tenant]], public: int, more: int
) -> None:
    identities = Identities(Isolation.LAYERED, orgs=ORGS, users=USERS)
    ids: dict[tuple[int, ...], int] = {}
    ours: list[int] = []
    theirs: list[bytes] = []
    for tokens, tenant in sent:
        ends = range(BLOCK, len(tokens) + 1, BLOCK)
        traced = [ids.setdefault(tokens[:end], len(ids)) for end in ends]
        layers = Layers(public // BLOCK, (public + more) // BLOCK)
        ours += identities.name(traced, tenant, layers)
        theirs += core_names(tokens, tenant, public, public + more)
    for one, name in enumerate(ours):
        for other in range(one):
            assert (name == ours[other]) == (theirs[one] == theirs[other])


@pytest.mark.parametrize(
    ("isolation", "shared_with"),
    [
        (Isolation.NONE, {1: 3, 2: 3}),
        (Isolation.GLOBAL, {1: 2, 2: 2}),
        (Isolation.LAYERED, {1: 2, 2: 1}),
        (Isolation.ORG, {1: 3, 2: 0}),
        (Isolation.USER, {1: 0, 2: 0}),
    ],
)
def test_what_each_isolation_shares(isolation: Isolation, shared_with: dict[int, int]) -> None:
    """User 1 is a colleague of user 0, user 2 is not; one block of each layer."""
    identities = Identities(isolation, orgs=ORGS, users=USERS)
    layers = Layers(1, 2)
    mine = identities.name([7, 8, 9], TENANTS[0], layers)
    for user, count in shared_with.items():
        theirs = identities.name([7, 8, 9], TENANTS[user], layers)
        assert sum(a == b for a, b in zip(mine, theirs, strict=True)) == count


def test_a_block_that_straddles_is_the_narrower_layers() -> None:
    request = TracedRequest(0.0, 100, 1, 16, range(7), 0, tools_tokens=33, system_tokens=30)
    assert layers_of(request) == Layers(2, 3)


def test_layers_nest() -> None:
    with pytest.raises(Misuse, match="layers nest"):
        Layers(3, 2)


@given(
    st.integers(-(1 << 130), 1 << 130),
    st.integers(-300, 300),
    st.integers(0, 99),
    st.integers(0, 99),
)
def test_names_of_any_ids_are_apart(block: int, step: int, user: int, other: int) -> None:
    identities = Identities(Isolation.USER, orgs=1, users=100)
    (one,) = identities.name([block], Tenant(user, 0), Layers(0, 0))
    (two,) = identities.name([block + step], Tenant(other, 0), Layers(0, 0))
    assert (one == two) == (step == 0 and user == other)
    assert (hash(one) == hash(two)) == (one == two)  # else tables go through them one by one


def test_owners_are_no_more_than_can_be_told_apart() -> None:
    with pytest.raises(Misuse, match="owners are more than"):
        Identities(Isolation.USER, orgs=1, users=1 << 61)
