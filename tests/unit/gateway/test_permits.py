"""A ticket the gateway mints verifies at the engine, for exactly the tokens it was made of."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopekv.adapters.ed25519 import TicketSigner, verifier
from scopekv.core.blocks import Fingerprint
from scopekv.core.encoding import encode_tokens
from scopekv.core.enforcement import Gate, judge
from scopekv.core.reasons import TicketReason
from scopekv.core.replay import UseLedger
from scopekv.core.scopes import Narrowing, Principal, Scope, ScopeKind, private_scope
from scopekv.core.segments import Segment
from scopekv.core.tickets import Ticket, audience_id, matching_grants, prefix_digests, verify
from scopekv.errors import Misuse
from scopekv.gateway import permits
from scopekv.gateway.permits import Begun, Issuer
from scopekv.gateway.tokens import Tokens

SIGNER, SECRET, HOME = TicketSigner(b"k" * 32), b"s" * 32, Fingerprint(b"n" * 32)
HERE = audience_id("default")
KEYS = {SIGNER.key_id: verifier(SIGNER.public_key)}
ANN = Principal("acme", "ann", "org_1", "usr_1")
OWN = private_scope(ANN, Narrowing())
DOC = Scope(ScopeKind.DOCUMENT, ("doc_1",))


def issuer(secret: bytes = SECRET) -> Issuer:
    return Issuer(SIGNER.key_id, SIGNER.sign, secret, HERE, 60_000)


def read(text: str) -> Ticket:
    now = time.time_ns() // 1_000_000
    return verify(text, keys=KEYS, now_ms=now, audience=HERE, namespace=HOME)


@settings(deadline=None)
@given(
    st.lists(st.integers(0, 50_000), min_size=1, max_size=40),
    st.data(),
)
def test_a_minted_ticket_verifies_and_its_digests_hold(ids: list[int], data: st.DataObject) -> None:
    cuts = st.lists(st.integers(1, len(ids)), unique=True, max_size=3).map(sorted)
    ends = data.draw(cuts)
    scopes = [Scope(ScopeKind.DOCUMENT, (f"doc_{i}",)) for i in range(len(ends))]
    segments = [
        Segment(start, end, scope)
        for start, end, scope in zip([0, *ends], [*ends, None], [*scopes, OWN], strict=True)
    ]
    epochs = list(range(len(segments)))
    text = issuer().ticket(ANN, segments, epochs, Tokens.of(ids), namespace=HOME, uses=2)
    ticket = read(text)
    assert [grant.end for grant in ticket.grants] == [*ends, None]
    assert [grant.scope for grant in ticket.grants] == [s.id(SECRET) for s in (*scopes, OWN)]
    assert [grant.epoch for grant in ticket.grants] == epochs
    assert (ticket.uses, ticket.principal) == (2, ANN.pseudonym(SECRET))
    assert matching_grants(ticket, ids) == len(ends)
    if ends:
        assert matching_grants(ticket, [ids[0] + 1, *ids[1:]]) == 0


def test_the_engine_takes_it_once() -> None:
    segments = (Segment(0, 2, DOC), Segment(2, None, OWN))
    text = issuer().ticket(ANN, segments, (0, 0), Tokens.of([1, 2, 3]), namespace=HOME, uses=1)
    ledger = UseLedger()
    verdicts = [
        judge(
            text,
            [1, 2, 3],
            gate=Gate(KEYS, HERE, HOME, {}),
            ledger=ledger,
            now_ms=time.time_ns() // 1_000_000,
            monotonic_ms=0,
            nonce=bytes(16),
            adapter=b"",
        )
        for _ in range(2)
    ]
    assert [verdict.reason for verdict in verdicts] == [TicketReason.OK, TicketReason.USED_UP]


def test_without_tokens_there_is_one_open_grant() -> None:
    segments = (Segment(0, None, OWN),)
    ticket = read(issuer().ticket(ANN, segments, (4,), None, namespace=HOME, uses=1))
    assert [(g.end, g.scope, g.epoch) for g in ticket.grants] == [(None, OWN.id(SECRET), 4)]
    wide = (Segment(0, 2, DOC), *segments)
    with pytest.raises(Misuse):
        issuer().ticket(ANN, wide, (0, 0), None, namespace=HOME, uses=1)


def test_each_ticket_has_its_own_nonce() -> None:
    segments = (Segment(0, None, OWN),)
    one, other = (
        read(issuer().ticket(ANN, segments, (0,), None, namespace=HOME, uses=1)) for _ in range(2)
    )
    assert one.nonce != other.nonce
    assert replace(one, nonce=other.nonce, issued_ms=other.issued_ms) == other


def test_the_salt_is_that_of_the_narrowest_scope() -> None:
    segments = (Segment(0, 2, DOC), Segment(2, None, OWN))
    assert issuer().salt(segments, (0, 0)) == OWN.salt(SECRET, 0) != DOC.salt(SECRET, 0)
    assert issuer(b"t" * 32).salt(segments, (0, 0)) != issuer().salt(segments, (0, 0))


def test_kept_names_are_the_right_ones_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A name kept for one scope never serves another, nor a salt for an id."""
    monkeypatch.setattr(permits, "NAMES_MAX", 5)
    one = issuer()
    for _ in range(2):
        for number in range(9):
            own = private_scope(ANN, Narrowing(session=f"s{number}"))
            segments = (Segment(0, None, own),)
            assert one.salt(segments, (0,)) == own.salt(SECRET, 0)
            text = one.ticket(ANN, segments, (0,), None, namespace=HOME, uses=1)
            assert read(text).grants[0].scope == own.id(SECRET)
            assert len(one._names) <= 5


def test_an_issuer_shows_neither_secret_nor_names() -> None:
    shown = repr(issuer())
    assert SECRET.hex() not in shown
    assert repr(SECRET) not in shown


beginnings = st.tuples(st.sampled_from([DOC, OWN]), st.integers(0, 1), st.integers(0, 2))


@settings(deadline=None)
@given(st.lists(st.tuples(beginnings, st.integers(255, 258), st.integers(0, 4)), max_size=12))
def test_digests_of_kept_beginnings_are_those_of_the_whole_prompt(
    prompts: list[tuple[tuple[Scope, int, int], int, int]],
) -> None:
    """Whatever a scope had sent before under the same end, other text and short prompts too."""
    begun = Begun(bytes_max=2 * 4 * 258)
    for (scope, epoch, text), end, more in prompts:
        packed = encode_tokens([text] * (254 + more) + list(range(4)))
        ends = [end, end + 3]
        assert begun.digests(scope, epoch, packed, ends) == prefix_digests(packed, ends)
        assert begun.held_bytes <= 2 * 4 * 258


def test_l10_a_beginning_is_kept_for_each_scope_and_epoch_alone() -> None:
    """Nobody is served sooner because another scope has sent the same text."""
    begun, packed = Begun(), encode_tokens(range(300))
    sent = [(DOC, 0), (OWN, 0), (DOC, 1)]
    for number, (scope, epoch) in enumerate(sent, 1):
        begun.digests(scope, epoch, packed, [300])
        assert begun.held_bytes == number * len(packed)
    for scope, epoch in sent:
        begun.digests(scope, epoch, packed, [300])
    assert begun.held_bytes == len(sent) * len(packed)
