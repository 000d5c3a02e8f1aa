"""How often cached contents may be changed."""

from __future__ import annotations

import pytest

from scopekv.errors import Overloaded
from scopekv.gateway.cached_contents import pace
from scopekv.gateway.cached_contents.pace import CHANGES_MAX, SECONDS_EACH, Pace


def test_one_account_too_fast_waits_and_no_other_does() -> None:
    now = [1000.0]
    limit = Pace(lambda: now[0])
    for _ in range(CHANGES_MAX):
        limit.take("a")
    for _ in range(3):
        with pytest.raises(Overloaded) as refused:
            limit.take("a")
        assert refused.value.retry_after_seconds == 1
    limit.take("b")
    now[0] += SECONDS_EACH
    limit.take("a")
    with pytest.raises(Overloaded):
        limit.take("a")


def test_accounts_that_are_free_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "ACCOUNTS_MAX", 3)
    now = [1000.0]
    limit = Pace(lambda: now[0])
    for number in range(20):
        limit.take(str(number))
        now[0] += SECONDS_EACH
        assert len(limit._free_at) <= 3
