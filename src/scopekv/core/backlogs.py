"""What each of several gateways has at one engine: told to the engine, which tells the others.

    gateway 1 --- "I have 2.0 s" --->  engine  <--- "I have 0.5 s" --- gateway 2
              <-- "others: 0.5 s" ---          --- "others: 2.0 s" -->

It goes along as a header of each call. A gateway says all that it has, not what changed, so nothing
adds up wrongly where a word is lost; and it hears only of others, so alone it hears of nothing.
"""

from __future__ import annotations

import re
from typing import NamedTuple

HEADER = b"x-scopekv-load"
LIFE_SECONDS = 5.0  # of a gateway's word; it says it anew with each request and each look (2 s)
SENDERS_MAX = 256
_WRITTEN = re.compile(rb"(\d{1,6}\.\d{3}) (\d{1,7}) (\d{1,7})")
_SENDER = re.compile(rb"[0-9a-f]{16}")
_SECONDS_MAX = 999_999.0


class Backlog(NamedTuple):
    """Requests at one instance: seconds of prefill ahead, and how many wait and decode.

    Never negative. Made anew for each request, so it is as cheap as can be.
    """

    queue_seconds: float = 0.0
    waiting: int = 0
    decoding: int = 0

    def after(self, seconds: float) -> float:
        """The queue that is left then: an engine works off one second of prefill in a second."""
        return max(0.0, self.queue_seconds - max(0.0, seconds))

    def written(self) -> bytes:
        return b"%.3f %d %d" % (
            min(self.queue_seconds, _SECONDS_MAX),
            min(self.waiting, 9_999_999),
            min(self.decoding, 9_999_999),
        )


NOTHING = Backlog()


def read_backlog(text: bytes | None) -> Backlog:
    """What `Backlog.written` made; nothing where it is missing or of another version."""
    found = _WRITTEN.fullmatch(text) if text else None
    return Backlog(float(found[1]), int(found[2]), int(found[3])) if found else NOTHING


class Backlogs:
    """The words of all gateways at one engine. Bounded; touches nothing; `now` is monotonic."""

    __slots__ = ("_told",)

    def __init__(self) -> None:
        self._told: dict[bytes, tuple[Backlog, float]] = {}  # the latest last

    def __len__(self) -> int:
        return len(self._told)

    def told(self, header: bytes | None, now: float) -> bytes | None:
        """Note `SENDER BACKLOG` in place of the sender's last word; return who it is.

        None, and nothing noted, where the header is missing or is none.
        """
        sender, _, text = (header or b"").partition(b" ")
        if not _SENDER.fullmatch(sender) or not _WRITTEN.fullmatch(text):
            return None
        self._told.pop(sender, None)
        self._forget_before(now - LIFE_SECONDS)
        self._told[sender] = (read_backlog(text), now)
        return sender

    def others(self, sender: bytes, now: float) -> Backlog:
        """What all other gateways have here now. Cost: O(gateways)."""
        self._forget_before(now - LIFE_SECONDS)
        queue, waiting, decoding = NOTHING
        for name, (backlog, at) in self._told.items():
            if name != sender:
                queue += backlog.after(now - at)
                waiting += backlog.waiting
                decoding += backlog.decoding
        return Backlog(queue, waiting, decoding)

    def _forget_before(self, then: float) -> None:
        """Also whoever is one too many: room for one more is left."""
        for sender, (_, at) in list(self._told.items()):
            if at > then and len(self._told) < SENDERS_MAX:
                return
            del self._told[sender]
