"""Who sent what: conversations told apart, shared text found, senders drawn by a seed."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from scopekv.errors import Misuse
from scopekv.simulate.fleet.demand import SERVEGEN, Demand, servegen_weights
from scopekv.simulate.fleet.dice import draw
from scopekv.simulate.fleet.identity import Layers, Tenant
from scopekv.simulate.fleet.sessions import Sessions
from scopekv.simulate.fleet.shared_text import profile_of
from scopekv.simulate.fleet.synthetic import Synthetic
from scopekv.simulate.fleet.tenants import Assignment, Tenancy, TenantSpec
from scopekv.simulate.traces.request import UNKNOWN, TracedRequest


def asked(ids: list[int], tokens: int, answer: int = 10, session: int = UNKNOWN) -> TracedRequest:
    return TracedRequest(0.0, tokens, answer, 16, ids, session)


def test_a_prompt_that_begins_with_a_whole_earlier_one_is_its_next_turn() -> None:
    sessions = Sessions()
    assert sessions.of(asked([1, 2, 3], 40)) == 0
    assert sessions.of(asked([1, 2, 4, 5], 60)) == 0
    assert sessions.of(asked([1, 2, 4, 6, 7], 75)) == 0


def test_two_questions_to_one_document_are_two_conversations() -> None:
    sessions = Sessions()
    assert sessions.of(asked([1, 2, 3], 40)) == 0
    assert sessions.of(asked([1, 2, 4], 41)) == 1  # no room for the answer of the one before
    assert sessions.of(asked([1, 2, 5], 80 // 2)) == 2
    assert sessions.of(asked([1, 2, 6, 7], 60)) == 3  # whose turn it is cannot be told


def test_a_short_turn_in_the_same_block_is_the_next_turn() -> None:
    sessions = Sessions()
    assert sessions.of(asked([1, 2, 3], 33, answer=4)) == 0
    assert sessions.of(asked([1, 2, 4], 40)) == 0


def test_a_trace_that_names_its_conversations_is_believed() -> None:
    sessions = Sessions()
    assert sessions.of(asked([1, 2], 32, session=5)) == 5
    assert sessions.count == 6


def documents() -> list[TracedRequest]:
    """Four conversations on document 10-11, two on 20, all behind block 1; 40 without any."""
    made = [asked([1, 10, 11, 100 + n], 64 - n) for n in range(4)]
    made += [asked([1, 20, 200 + n], 48 - n) for n in range(2)]
    return made + [asked([1, 300 + n], 32) for n in range(40)]


def test_what_three_conversations_begin_with_is_shared_and_what_most_do_is_wide() -> None:
    profile = profile_of(documents())
    assert profile.shared == {1, 10, 11}
    assert profile.wide == {1, 10, 11}  # 4 of 46
    many = documents() + [asked([1, 9000 + n], 32) for n in range(100)]
    assert profile_of(many).wide == {1}


@pytest.mark.parametrize(("public", "layers"), [(0.0, Layers(1, 3)), (1.0, Layers(3, 3))])
def test_a_document_is_public_or_of_one_organisation_whose_users_alone_ask(
    public: float, layers: Layers
) -> None:
    requests = documents() + [asked([1, 9000 + n], 32) for n in range(100)]
    tenancy = Tenancy(TenantSpec(10, 100, public=public), 1, profile_of(requests))
    placed = [tenancy.place(one) for one in requests]
    assert {each.layers for each in placed[:4]} == {layers}
    assert {each.layers for each in placed[6:]} == {Layers(1, 1)}
    if not public:
        assert len({each.tenant.org for each in placed[:4]}) == 1


def test_a_conversation_is_one_users_and_a_random_assignment_tears_it() -> None:
    turns = [asked(list(range(n + 2)), 16 * (n + 2), answer=1) for n in range(30)]
    profile = profile_of(turns)
    for assign, many in ((Assignment.SESSION, False), (Assignment.RANDOM, True)):
        tenancy = Tenancy(TenantSpec(5, 50, assign=assign), 1, profile)
        users = {tenancy.place(one).tenant for one in turns}
        assert (len(users) > 1) == many


def test_the_same_seed_gives_the_same_senders_and_another_does_not() -> None:
    requests = documents()
    profile = profile_of(requests)

    def senders(seed: int) -> list[Tenant]:
        tenancy = Tenancy(TenantSpec(), seed, profile)
        return [tenancy.place(one).tenant for one in requests]

    assert senders(1) == senders(1) != senders(2)


def test_a_user_belongs_to_one_organisation_and_all_are_within_bounds() -> None:
    spec = TenantSpec(orgs=7, users=23)
    requests = [asked([n], 16, session=n) for n in range(3000)]
    tenancy = Tenancy(spec, 1, profile_of(requests))
    tenants = {tenancy.place(one).tenant for one in requests}
    assert len({tenant.user for tenant in tenants}) == len(tenants) <= 23
    assert {tenant.org for tenant in tenants} <= set(range(7))


def test_demand_is_as_unequal_as_among_real_clients() -> None:
    weights = servegen_weights(len(SERVEGEN))
    assert weights == pytest.approx(SERVEGEN)
    demand = Demand(servegen_weights(100))
    drawn = Counter(demand.pick(draw(1, n)) for n in range(20_000))
    top = sum(count for _, count in drawn.most_common(10)) / 20_000
    assert top > 0.6  # the tenth that asks most asks for most


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("orgs=ten", "write orgs=N"),
        ("planets=3", "write orgs=N"),
        ("orgs=5,users=4", "cannot fill 5 organisations"),
        ("public=2", "from 0 to 1"),
    ],
)
def test_wrong_tenants_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(Misuse, match=complaint):
        TenantSpec.parse(text)


def test_tenants_print_as_they_are_read() -> None:
    spec = TenantSpec(3, 9, 0.5, assign=Assignment.RANDOM)
    assert TenantSpec.parse(str(spec)) == spec


def test_synthetic_requests_are_chained_and_their_documents_audiences_hold() -> None:
    made = Synthetic(requests=1000, users=200, orgs=10, documents=20, block_tokens=256)
    of = made.tenants()
    before: dict[int, int] = {}
    orgs: dict[int, set[int]] = {}
    requests = list(made)
    assert requests == list(made)
    assert [r.at_seconds for r in requests] == sorted(r.at_seconds for r in requests)
    for request in requests:
        ids = tuple(request.block_ids)
        assert len(set(ids)) == len(ids)
        for parent, block in itertools.pairwise(ids):
            assert before.setdefault(block, parent) == parent
        if request.system_tokens:
            orgs.setdefault(ids[1], set()).add(of(request.session).org)
    assert orgs
    assert all(len(found) == 1 for found in orgs.values())
