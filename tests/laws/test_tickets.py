"""Law L3: the engine acts on a verified ticket only; any other shares with nobody."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopekv.adapters.ed25519 import TicketSigner, verifier
from scopekv.core.blocks import BlockTagger, Fingerprint
from scopekv.core.encoding import encode_tokens
from scopekv.core.enforcement import Gate, IsolatedTags, Verdict, judge, tags_for
from scopekv.core.reasons import TicketReason
from scopekv.core.replay import UseLedger
from scopekv.core.scopes import Pseudonym, ScopeId
from scopekv.core.segments import SEGMENTS_MAX
from scopekv.core.tickets import (
    SKEW_MS,
    TICKET_CHARS_MAX,
    Grant,
    Ticket,
    audience_id,
    mint,
    narrow,
    prefix_digests,
    verify,
)
from scopekv.errors import Misuse, TicketInvalid

LAW = settings(deadline=None)
SIGNER, STRANGER = TicketSigner(b"1" * 32), TicketSigner(b"2" * 32)
HOME, AWAY = Fingerprint(b"n" * 32), Fingerprint(b"m" * 32)
HERE = audience_id("default")
GATE = Gate({SIGNER.key_id: verifier(SIGNER.public_key)}, HERE, HOME, {})
NOW, TTL = 1_800_000_000_000, 60_000
TOKENS = list(range(64))


def ticket_for(tokens: list[int], ends: list[int], uses: int = 1) -> Ticket:
    digests = prefix_digests(encode_tokens(tokens), ends)
    grants = [
        Grant(end, ScopeId(bytes([i + 1]) * 16), i, digest)
        for i, (end, digest) in enumerate(zip((*ends, None), (*digests, b""), strict=True))
    ]
    return Ticket(
        SIGNER.key_id, NOW, TTL, HERE, HOME, Pseudonym(b"p" * 16), b"n" * 16, uses, tuple(grants)
    )


def judged(
    text: object, tokens: list[int] | None = TOKENS, ledger: UseLedger | None = None, at: int = NOW
) -> Verdict:
    return judge(
        text,
        tokens,
        gate=GATE,
        ledger=UseLedger() if ledger is None else ledger,
        now_ms=at,
        monotonic_ms=0,
        nonce=b"i" * 16,
        adapter=b"",
    )


def assert_isolated(verdict: Verdict, reason: TicketReason | None = None) -> None:
    assert isinstance(verdict.tags, IsolatedTags)
    assert verdict.ticket is None
    assert verdict.tags.tag(0, 32) == f"isolated-{(b'i' * 16).hex()}"
    assert reason is None or verdict.reason is reason


GOOD = ticket_for(TOKENS, [20, 40])
TEXT = mint(GOOD, SIGNER.sign)
ends_of = st.lists(st.integers(1, 64), unique=True, max_size=5).map(sorted)


@LAW
@given(ends_of, st.integers(1, 8))
def test_a_minted_ticket_verifies_to_itself(ends: list[int], uses: int) -> None:
    ticket = ticket_for(TOKENS, ends, uses)
    text = mint(ticket, SIGNER.sign)
    found = verify(text, keys=GATE.keys, now_ms=NOW, audience=HERE, namespace=HOME)
    assert found == ticket
    verdict = judged(text)
    assert (verdict.reason, verdict.ticket) == (TicketReason.OK, ticket)


CHARS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/ \né"


@LAW
@given(st.integers(0, len(TEXT) - 1), st.sampled_from(CHARS))
def test_a_ticket_that_does_not_verify_shares_with_nobody(at: int, char: str) -> None:
    """One changed character anywhere: version, body, signature or spelling."""
    if TEXT[at] != char:
        assert_isolated(judged(TEXT[:at] + char + TEXT[at + 1 :]))


@LAW
@given(st.integers(0, len(TEXT) - 1), st.sampled_from(["", "=", "A", "AAAA", "\n"]))
def test_a_truncated_or_longer_ticket_shares_with_nobody(keep: int, more: str) -> None:
    assert_isolated(judged(TEXT[:keep]))
    assert_isolated(judged(TEXT[keep + 1 :]))
    assert more == "" or judged(TEXT + more).reason is TicketReason.MALFORMED


junk = st.one_of(
    st.integers(), st.booleans(), st.binary(), st.text(max_size=90), st.lists(st.text()),
    st.dictionaries(st.text(max_size=4), st.text(max_size=4)), st.just("A" * 9000), st.just(""),
)  # fmt: skip


@LAW
@given(junk)
def test_whatever_stands_for_a_ticket_shares_with_nobody(text: object) -> None:
    assert_isolated(judged(text), TicketReason.MALFORMED)


def _stolen(ticket: Ticket) -> str:
    """Another body under the signature of a good ticket."""
    raw = base64.urlsafe_b64decode(TEXT + "=" * (-len(TEXT) % 4))
    return mint(ticket, lambda _: raw[-64:])


a, b, last = GOOD.grants
ALTERED = {
    "offset": replace(GOOD, grants=(replace(a, end=19), b, last)),
    "swapped scopes": replace(
        GOOD, grants=(replace(a, scope=b.scope), replace(b, scope=a.scope), last)
    ),
    "digest": replace(GOOD, grants=(replace(a, digest=b.digest), b, last)),
    "epoch": replace(GOOD, grants=(replace(a, epoch=7), b, last)),
    "fewer grants": replace(GOOD, grants=(a, last)),
    "open scope": replace(GOOD, grants=(a, b, replace(last, scope=a.scope))),
    "principal": replace(GOOD, principal=Pseudonym(b"q" * 16)),
    "nonce": replace(GOOD, nonce=b"m" * 16),
    "uses": replace(GOOD, uses=4096),
    "longer life": replace(GOOD, ttl_ms=TTL + 1),
    "later issue": replace(GOOD, issued_ms=NOW + 1),
    "audience": replace(GOOD, audience=audience_id("other")),
    "namespace": replace(GOOD, namespace=AWAY),
}


@pytest.mark.parametrize("what", ALTERED)
def test_every_field_is_signed(what: str) -> None:
    assert_isolated(judged(_stolen(ALTERED[what])), TicketReason.BAD_SIGNATURE)


def test_a_ticket_for_others_shares_with_nobody() -> None:
    """Each with a good signature: the wrong signer, place, engine, or time."""
    cases = {
        TicketReason.UNKNOWN_KEY: mint(replace(GOOD, key_id=STRANGER.key_id), STRANGER.sign),
        TicketReason.BAD_SIGNATURE: mint(GOOD, STRANGER.sign),
        TicketReason.OTHER_AUDIENCE: mint(ALTERED["audience"], SIGNER.sign),
        TicketReason.OTHER_NAMESPACE: mint(ALTERED["namespace"], SIGNER.sign),
        TicketReason.ABSENT: None,
    }
    for reason, text in cases.items():
        assert_isolated(judged(text), reason)
    assert_isolated(judged(TEXT, None), TicketReason.WITHOUT_IDS)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (NOW - SKEW_MS - 1, TicketReason.NOT_YET),
        (NOW - SKEW_MS, TicketReason.OK),
        (NOW + TTL + SKEW_MS - 1, TicketReason.OK),
        (NOW + TTL + SKEW_MS, TicketReason.EXPIRED),
        (0, TicketReason.NOT_YET),
        (2**62, TicketReason.EXPIRED),
    ],
)
def test_a_ticket_lives_within_its_time_and_the_skew(at: int, reason: TicketReason) -> None:
    verdict = judged(TEXT, at=at)
    assert verdict.reason is reason
    assert (verdict.ticket is None) == (reason is not TicketReason.OK)


def test_a_used_up_ticket_shares_with_nobody() -> None:
    ledger = UseLedger()
    text = mint(ticket_for(TOKENS, [20], uses=2), SIGNER.sign)
    assert [judged(text, ledger=ledger).reason for _ in range(3)] == ["ok", "ok", "used_up"]
    assert_isolated(judged(text, ledger=ledger), TicketReason.USED_UP)


@LAW
@given(ends_of, st.integers(0, 63), st.integers(0, 64))
def test_a_drifted_digest_narrows_to_the_last_scope(ends: list[int], at: int, size: int) -> None:
    """From the first segment whose text differs on, all belongs to the caller alone."""
    ticket = ticket_for(TOKENS, ends)
    tokens = [*TOKENS[:at], 999, *TOKENS[at + 1 :]][:size]
    verdict = judged(mint(ticket, SIGNER.sign), tokens)
    held = [end for end in ends if end <= min(at, size)]
    assert verdict.ticket == narrow(ticket, len(held))
    assert (verdict.reason is TicketReason.OK) == (len(held) == len(ends))
    assert isinstance(verdict.tags, BlockTagger)
    after = verdict.tags.tag(max([0, *held]), 65)
    assert after == tags_for(replace(ticket, grants=ticket.grants[-1:]), HOME, b"").tag(0, 65)


@LAW
@given(ends_of, st.integers(0, 7), st.integers(0, 7))
def test_narrowing_never_widens(ends: list[int], keep: int, again: int) -> None:
    ticket = ticket_for(TOKENS, ends)
    narrowed = narrow(ticket, keep)
    assert narrowed.grants[-1] == ticket.grants[-1]
    assert narrowed.grants[:-1] == ticket.grants[:-1][:keep]
    assert narrow(narrowed, again) == narrow(ticket, min(keep, again))
    assert replace(narrowed, grants=ticket.grants) == ticket  # nothing else changed
    wide, small = tags_for(ticket, HOME, b""), tags_for(narrowed, HOME, b"")
    own = tags_for(narrow(ticket, 0), HOME, b"").tag(0, 1)
    assert all(small.tag(t, t + 1) in (wide.tag(t, t + 1), own) for t in range(65))
    with pytest.raises(Misuse):
        narrow(ticket, -1)


def test_the_largest_ticket_fits_its_bound() -> None:
    ends = [2**31 - SEGMENTS_MAX + i for i in range(SEGMENTS_MAX - 1)]
    grants = [Grant(end, ScopeId(b"s" * 16), 2**63 - 1, b"d" * 32) for end in ends]
    largest = replace(
        GOOD, issued_ms=2**53 - 1, uses=4096, ttl_ms=3_600_000, grants=(*grants, last)
    )
    assert len(mint(largest, SIGNER.sign)) <= TICKET_CHARS_MAX
    with pytest.raises(Misuse):
        replace(largest, grants=(Grant(1, a.scope, 0, a.digest), *largest.grants))


@pytest.mark.parametrize("bad", [-1, 2**32, 1.5, "x", None])
def test_judging_raises_for_no_token_ids_whatever(bad: object) -> None:
    """What no model has as a token narrows like any other text that was not granted."""
    tokens: list[object] = [*TOKENS]
    tokens[3] = bad
    verdict = judged(TEXT, tokens)  # type: ignore[arg-type]
    assert verdict.ticket is None or verdict.ticket.grants == GOOD.grants[-1:]


def test_a_refusal_says_the_code_and_nothing_of_the_ticket() -> None:
    with pytest.raises(TicketInvalid) as refusal:
        verify(TEXT[:-8] + "AAAAAAAA", keys=GATE.keys, now_ms=NOW, audience=HERE, namespace=HOME)
    assert str(refusal.value) == "ticket refused: bad signature"
