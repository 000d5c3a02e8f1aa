"""Laws of what is learned for eviction: one account's habits say nothing of another's (L10)."""

from __future__ import annotations

import pytest

from scopekv.core.eviction import Entry, ScopedPolicy, Shares
from tests.laws.eviction_cache import ORDERS, order_of


def order_of_quiet(kind: str, number_of_floods: int) -> list[tuple[bytes, int]]:
    """In which order an account's blocks would go, below a document that is everyone's."""
    document = (b"document", 0)
    policy: ScopedPolicy[tuple[bytes, int]] = ScopedPolicy(Shares(9000, 0.0), order_of(kind, 300))
    policy.insert(document, Entry(b"public", None, 0, 1, 1.0))
    for number in range(300):
        policy.insert((b"quiet", number), Entry(b"quiet", document, 1, 1, 1.0))
        if number % 3 == 0:
            policy.touch((b"quiet", number - number % 7))
        for more in range(number_of_floods):
            policy.insert((b"flood", 10 * number + more), Entry(b"flood", document, 1, 1, 1.0))
            policy.touch((b"flood", 5 * number + more))
            policy.touch(document)
    gone = policy.victims(len(policy), b"x")
    assert gone is not None
    return [key for key in gone if key[0] == b"quiet"]


@pytest.mark.parametrize("kind", ORDERS)
def test_what_others_do_never_changes_in_which_order_an_accounts_blocks_leave(kind: str) -> None:
    """L10: what is learned of one account says nothing of another, nor does shared text."""
    alone = order_of_quiet(kind, 0)
    assert len(alone) == 300
    assert alone == order_of_quiet(kind, 3)
