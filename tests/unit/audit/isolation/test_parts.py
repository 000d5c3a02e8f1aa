"""Texts, tickets, counters, gaps: the parts that need no deployment."""

from __future__ import annotations

import hashlib
import time

import pytest

from scopekv.adapters.ed25519 import TicketSigner, verifier
from scopekv.audit.endpoint import CHAT, COMPLETIONS
from scopekv.audit.isolation.batches import Counters
from scopekv.audit.isolation.engines import counter
from scopekv.audit.isolation.gaps import gaps
from scopekv.audit.isolation.target import Forge, IsolationSettings, IsolationTarget, Place
from scopekv.audit.isolation.texts import Prompt, Texts
from scopekv.audit.isolation.tickets import FALSE_TICKETS, Mint
from scopekv.audit.isolation.verdicts import counter_check
from scopekv.audit.results import Verdict
from scopekv.cli.audit.registrar import members_of
from scopekv.core.blocks import Fingerprint
from scopekv.core.scopes import Scope, ScopeId, ScopeKind
from scopekv.core.tickets import Ticket, audience_id, verify
from scopekv.errors import TicketInvalid

FINGERPRINT = Fingerprint(hashlib.sha256(b"engine").digest())
SIGNER = TicketSigner(bytes(range(32)))
FORGE = Forge(
    SIGNER.key_id,
    SIGNER.sign,
    bytes(32),
    "default",
    lambda org, name: Scope(ScopeKind.USER, (org, name)),
)
MINT = Mint(FORGE, FINGERPRINT, ScopeId(bytes(range(16))))
MEMBERS = members_of("unit")


def test_texts_follow_from_the_seed_and_no_two_are_alike() -> None:
    first, again, other = (Texts(seed, block_size=32, blocks=3) for seed in (1, 1, 2))
    made = [first.text() for _ in range(50)]
    assert made == [again.text() for _ in range(50)]
    assert not set(made) & {other.text() for _ in range(50)}
    assert len(set(made)) == 50
    assert min(len(text.split()) for text in made) >= 96
    assert len(first.tail().split()) < 32


def test_a_prompts_text_stands_first() -> None:
    chat = Prompt(CHAT, "m", "head", "tail").body()
    assert [m["role"] for m in chat["messages"]] == ["user"]
    assert chat["messages"][0]["content"].startswith("head")
    system = Prompt(CHAT, "m", "head", "tail", system=True).body()
    assert system["messages"][0] == {"role": "system", "content": "head"}
    assert Prompt(COMPLETIONS, "m", "head", "tail").body()["prompt"].startswith("head")


@pytest.mark.parametrize("name", sorted(FALSE_TICKETS))
def test_each_false_ticket_is_what_its_name_says(name: str) -> None:
    """It is refused, or genuine for somebody else (`for_another_scope`) or other tokens."""
    made = FALSE_TICKETS[name](MINT)
    if name == "for_other_tokens":
        grants = opened(made).grants
        assert (grants[0].scope, grants[1].scope) == (MINT.scope, MINT.other_scope())
        return
    if name == "for_another_scope":
        assert opened(made).grants[0].scope != MINT.scope
        return
    with pytest.raises(TicketInvalid):
        opened(made)


def test_a_genuine_ticket_holds_and_each_is_another() -> None:
    assert opened(MINT.genuine()).grants[0].scope == MINT.scope
    assert MINT.genuine() != MINT.genuine()


def opened(text: object) -> Ticket:
    return verify(
        text,
        keys={SIGNER.key_id: verifier(SIGNER.public_key)},
        now_ms=time.time_ns() // 1_000_000,
        audience=audience_id("default"),
        namespace=FINGERPRINT,
    )


def test_a_counter_is_the_sum_over_its_labels_and_no_other() -> None:
    text = (
        '# TYPE hits counter\nhits{engine="0"} 12.0\nhits{engine="1"} 3.5e+01\n'
        'hits_total{engine="0"} 99.0\nhits_created{engine="0"} 1.7e+09\n'
    )
    assert counter(text, "hits") == 47
    assert counter(text, "none") == 0


def test_counters_are_compared_only_where_nobody_else_used_the_engine() -> None:
    counters = Counters()
    assert counter_check(counters).verdict is Verdict.NOT_TESTED
    counters.note(sent=100, told=0, looked_up=400, found=320)
    assert counter_check(counters).verdict is Verdict.NOT_TESTED
    counters.note(sent=100, told=32, looked_up=100, found=32)
    assert counter_check(counters).verdict is Verdict.HELD
    counters.note(sent=100, told=32, looked_up=100, found=96)
    check = counter_check(counters)
    assert check.verdict is Verdict.BROKEN
    assert "up to 64 tokens" in check.summary


def test_what_was_not_tested_says_why() -> None:
    target = IsolationTarget(
        "http://gateway", "m", MEMBERS, {m.seat: "k" for m in MEMBERS}, narrows=False
    )
    told = {
        one.what: one.why for one in gaps(target, IsolationSettings(1), [Place.ANY], cached=True)
    }
    assert "no engine's URL and key" in told["the valkey tier alone"]
    assert "no registry" in told["documents of every audience"]
    assert "end users and sessions" in told
    assert "a restart of the engine" in told
    blind = gaps(target, IsolationSettings(1), [Place.ANY], cached=False)
    assert [one.what for one in blind] == ["every cell of the matrix"]
