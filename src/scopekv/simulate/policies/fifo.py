"""First in, first out."""

from __future__ import annotations

from scopekv.core.lru import K, QueuePolicy


class FifoPolicy(QueuePolicy[K]):
    """A use changes nothing. A pin sends a block to the end: in a replay none is pinned."""

    def touch(self, key: K) -> None:
        """A use: no change."""
