"""Fences: scopes whose older epochs an engine serves no more, whatever a ticket says (L6)."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping

from scopekv.core.chains import Link
from scopekv.core.scopes import ScopeId
from scopekv.core.tickets import SKEW_MS, TTL_MS_MAX

LIFE_MS = TTL_MS_MAX + 2 * SKEW_MS


class Fences(Mapping[ScopeId, int]):
    """Scope to the lowest epoch that counts. Raised by revocation, never lowered.

    A fence is needed until every ticket minted before it is over; then it goes. One thread raises
    while others look: there is no moment at which a fence that stands cannot be seen.
    """

    def __init__(self) -> None:
        self._fences: OrderedDict[ScopeId, tuple[int, int]] = OrderedDict()  # oldest first

    def raise_above(self, links: Iterable[Link], monotonic_ms: int) -> None:
        """Let these (scope, epoch) pairs and those before them count no more.

        State change; drops fences of long ago. Cost: O(1) a pair.
        """
        for scope, epoch in links:
            held = self._fences.get(scope, (0, 0))[0]
            self._fences[scope] = (max(held, epoch + 1), monotonic_ms)
            self._fences.move_to_end(scope)
        while self._fences:
            scope, (_, at) = next(iter(self._fences.items()))
            if at + LIFE_MS >= monotonic_ms:
                break
            del self._fences[scope]

    def __getitem__(self, scope: ScopeId) -> int:
        return self._fences[scope][0]

    def __iter__(self) -> Iterator[ScopeId]:
        return iter(self._fences)

    def __len__(self) -> int:
        return len(self._fences)
