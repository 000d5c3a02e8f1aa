"""What is remembered of requests is bounded, and each caller's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scopekv.core.scopes import Narrowing, Principal, Scope, private_scope
from scopekv.gateway.explaining.recents import KEPT_PER_CALLER_MAX, Recent, Recents


def owner(name: str) -> Scope:
    return private_scope(Principal(name, "acme", name, name), Narrowing())


def recent(name: str, number: int, size: int) -> Recent:
    return Recent(
        *(
            f"req_{name}{number}",
            name,
            owner(name),
            1,
            "/v1/completions",
            bytes(size),
            float(number),
        ),
        *("engine-0", False, (), None, "", None),
        sender=f"acme/{name}",
    )


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=200))
def test_memory_is_bounded_and_the_newest_stay(sent: list[tuple[str, int]]) -> None:
    kept = Recents(bytes_max=100)
    for number, (name, size) in enumerate(sent):
        kept.add(recent(name, number, size))
        assert kept.held_bytes <= 100
        own = kept.before(owner(name), None)
        assert len(own) <= KEPT_PER_CALLER_MAX
        assert own[0].request_id == f"req_{name}{number}"
        assert all(one.principal == name for one in own)
    assert kept.held_bytes == sum(
        len(one.content) for name in "abc" for one in kept.before(owner(name), None)
    )


def test_one_larger_than_all_room_is_not_kept() -> None:
    kept = Recents(bytes_max=100)
    kept.add(recent("a", 1, 90))
    kept.add(recent("a", 2, 101))
    assert [one.request_id for one in kept.before(owner("a"), None)] == ["req_a1"]
    assert kept.before(owner("a"), "req_a1") == []
