"""Who is logged in: sessions in this process's memory, each bound to an API key's digest.

A session holds no key and no permission. Every page asks the registry who has the key now, so a
key that is blocked or deleted ends its sessions with the next request.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

IDLE_SECONDS = 30 * 60
LIFE_SECONDS = 8 * 3600
SESSIONS_MAX = 10_000
PER_KEY_MAX = 8


@dataclass(slots=True, repr=False)
class Session:
    """One browser's. `digest`: SHA-256 of its API key; `form_secret`: what its forms carry."""

    id: str
    digest: bytes
    made_at: float
    used_at: float
    form_secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    notice: str = ""  # what the next page says once

    def own_form(self, given: str) -> bool:
        """Whether a form was made for this session."""
        return hmac.compare_digest(given.encode(), self.form_secret.encode())

    def take_notice(self) -> str:
        notice, self.notice = self.notice, ""
        return notice


class Sessions:
    """Bounded over all and per key; the one that was used longest ago goes first.

    `clock`: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._all: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._all)

    def open(self, digest: bytes) -> Session:
        """A new session of this key, under an id that nobody can guess."""
        now = self._clock()
        own = [one.id for one in self._all.values() if one.digest == digest]
        for session_id in own[: max(0, len(own) - PER_KEY_MAX + 1)]:
            del self._all[session_id]
        while len(self._all) >= SESSIONS_MAX:
            self._all.popitem(last=False)
        session = Session(secrets.token_urlsafe(32), digest, now, now)
        self._all[session.id] = session
        return session

    def get(self, session_id: str) -> Session | None:
        """The session, used just now; None if there is none or its time is over."""
        session = self._all.get(session_id)
        if session is None:
            return None
        now = self._clock()
        if now - session.used_at >= IDLE_SECONDS or now - session.made_at >= LIFE_SECONDS:
            del self._all[session_id]
            return None
        session.used_at = now
        self._all.move_to_end(session_id)
        return session

    def close(self, session_id: str) -> None:
        """Idempotent."""
        self._all.pop(session_id, None)
