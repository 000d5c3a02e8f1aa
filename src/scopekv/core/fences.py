"""Fences: scopes whose older epochs an engine serves no more, whatever a ticket says (L6)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scopekv.core.scopes import ScopeId
from scopekv.core.tickets import SKEW_MS, TTL_MS_MAX

LIFE_MS = TTL_MS_MAX + 2 * SKEW_MS


class Fences(Mapping[ScopeId, int]):
    """Scope to the lowest epoch that counts. Raised by revocation, never lowered.

    A fence is needed until every ticket minted before it is over; then it goes.
    """

    def __init__(self) -> None:
        self._fences: dict[ScopeId, tuple[int, int]] = {}  # insertion order is age

    def raise_to(self, scope: ScopeId, epoch: int, monotonic_ms: int) -> None:
        """Let no epoch of `scope` below `epoch` count. State change; drops fences of long ago."""
        held = self._fences.pop(scope, (0, 0))[0]
        self._fences[scope] = (max(held, epoch), monotonic_ms)
        for old, (_, at) in list(self._fences.items()):
            if at + LIFE_MS >= monotonic_ms:
                break
            del self._fences[old]

    def __getitem__(self, scope: ScopeId) -> int:
        return self._fences[scope][0]

    def __iter__(self) -> Iterator[ScopeId]:
        return iter(self._fences)

    def __len__(self) -> int:
        return len(self._fences)
