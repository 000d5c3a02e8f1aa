"""The error tree. Storage trouble degrades to recompute; permission trouble refuses.

A message says what was wrong, the value, the limit and the next move. It never holds a prompt,
a key, a ticket or a token id.
"""


class ScopeKVError(Exception):
    """Base of every error that ScopeKV raises on purpose."""


class ConfigError(ScopeKVError):
    """A setting is wrong or missing: refuse to start, and say what to change."""


class Misuse(ScopeKVError):
    """The caller of a function or of the API broke its contract."""


class NotFound(Misuse):
    """The named thing does not exist, or the caller may not know that it does."""


class UnknownModel(NotFound):
    """No instance serves the named model."""


class Conflict(Misuse):
    """The named thing exists already, or is in a state that forbids the act."""


class TooLarge(Misuse):
    """An input is over a stated limit."""


class PromptTooLong(TooLarge):
    """A prompt leaves no room for an answer in the model's context."""


class Refused(ScopeKVError):
    """A permission check said no."""


class Unauthenticated(Refused):
    """No credential, or one that is unknown, expired or blocked."""


class ScopeDenied(Refused):
    """The principal may not do this with this scope or resource."""


class TicketInvalid(Refused):
    """A ticket is malformed, forged, for another engine or namespace, or used up.

    `reason` is a code of `core.reasons.TicketReason`; the message is made from it alone.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"ticket refused: {reason.replace('_', ' ')}")
        self.reason = reason


class TicketExpired(TicketInvalid):
    """A ticket's time is over, or has not come yet."""


class Corrupt(ScopeKVError):
    """Stored bytes failed a check: a miss, counted, quarantined, never served."""


class Unavailable(ScopeKVError):
    """An instance, a tier or a database is out of reach: recompute, or try another."""


class Overloaded(ScopeKVError):
    """More requests than the engines take, and no room to wait: come back later."""

    def __init__(self, message: str, *, retry_after_seconds: int) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
