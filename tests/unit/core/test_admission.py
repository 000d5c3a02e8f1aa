"""What is written to an outer tier."""

from __future__ import annotations

from typing import Any

import pytest

from scopekv.core.admission import Admission, Ghosts, expected_worth
from scopekv.core.eviction import Entry, ScopedPolicy, Shares
from scopekv.core.reasons import AdmissionReason
from scopekv.errors import Misuse

KEY, OTHER = bytes(32), bytes([1]) * 32


def decide(admission: Admission, key: bytes, used: int, **worth: Any) -> AdmissionReason:
    return admission.decide(key, used_bytes=used, size_bytes=10, capacity_bytes=100, **worth)


def test_everything_is_written_while_there_is_room() -> None:
    admission = Admission()
    assert decide(admission, KEY, 80) is AdmissionReason.ROOM
    assert decide(admission, KEY, 81) is AdmissionReason.FIRST_USE


def test_under_pressure_the_second_use_counts() -> None:
    admission = Admission()
    assert decide(admission, KEY, 95) is AdmissionReason.FIRST_USE
    assert decide(admission, OTHER, 95) is AdmissionReason.FIRST_USE
    assert decide(admission, KEY, 95) is AdmissionReason.SECOND_USE
    assert decide(admission, KEY, 95) is AdmissionReason.FIRST_USE


def test_what_is_worth_more_than_its_victim_is_written_at_once() -> None:
    admission = Admission()
    shared = expected_worth(cost=1.0, size_bytes=10, expected_uses=4)
    private = expected_worth(cost=1.0, size_bytes=10, expected_uses=1)
    assert decide(admission, KEY, 95, worth=shared, victim_worth=private) == "worth_more"
    assert decide(admission, KEY, 95, worth=private, victim_worth=private) == "first_use"
    assert decide(admission, OTHER, 95, worth=shared) == "first_use"


def test_ghosts_are_bounded_and_the_oldest_is_forgotten() -> None:
    ghosts = Ghosts(3)
    keys = [bytes([number]) * 16 for number in range(4)]
    for key in (*keys[:3], keys[0], keys[3]):
        ghosts.add(key)
    assert len(ghosts) == 3
    assert not ghosts.take(keys[1])
    assert ghosts.take(keys[0])
    assert not ghosts.take(keys[0])


def test_a_flood_of_unique_blocks_is_not_written_and_takes_no_memory() -> None:
    admission = Admission(ghosts_max=100)
    for number in range(10_000):
        assert decide(admission, number.to_bytes(16, "big"), 95) is AdmissionReason.FIRST_USE
    assert admission.ghosts == 100


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(Misuse):
        Admission(fill_fraction=1.1)
    with pytest.raises(Misuse):
        Ghosts(0)


def test_pressure_of_others_keeps_no_account_out_of_its_own_share() -> None:
    policy: ScopedPolicy[int] = ScopedPolicy(Shares(100))
    for key in range(95):
        policy.insert(key, Entry(b"flood", None, 0, 1, 1.0))
    assert policy.guaranteed(b"quiet", 40)
    assert not policy.guaranteed(b"quiet", 41)
    assert not policy.guaranteed(b"flood", 1)
    admission = Admission()
    for account, wanted in (
        (b"quiet", AdmissionReason.GUARANTEED),
        (b"flood", AdmissionReason.FIRST_USE),
    ):
        reason = admission.decide(
            account * 4,
            used_bytes=95,
            size_bytes=1,
            capacity_bytes=100,
            guaranteed=policy.guaranteed(account, 1),
        )
        assert reason is wanted
