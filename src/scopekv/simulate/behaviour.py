"""How a simulated engine misbehaves, and what it saw. Tests set the one and read the other."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from scopekv.core.chains import Tag
from scopekv.gateway.http.messages import Headers


@dataclass(slots=True)
class Behaviour:
    """May be changed while the engine runs; counts for the next request.

    `head_seconds`: before an answer begins. `held`: none begins while this is true, so that a test
    decides how long they last, whatever the machine does. `token_seconds`: to compute one token of
    a prompt, one prompt at a time. `event_seconds`: between two events of a stream.
    `dies_after_events`: cut the connection after so many events of a stream (or, at 0, instead of
    an answer). `refuses`: the status to answer completions with, 0 for none. `echoes_body`: a
    refusal repeats the request, as a careless validator would. `refusal`: its body as it is, of a
    server of another kind. `template_shown`: what the plugin
    says the chat template is, where it is not the one in use. `paused`: as a stopped process, it
    takes connections and answers nothing until this is False. `purges_busy`: so many purges remove
    nothing yet and say busy. `purge_seconds`: before a purge takes effect. `purge_error`: what the
    tier `directory`, which it then claims to have, says went wrong. `tiers_told`: what it says of
    its tiers' counters. `hides_cached`: its usage does not count cached tokens.
    """

    head_seconds: float = 0.0
    held: bool = False
    token_seconds: float = 0.0
    event_seconds: float = 0.0
    dies_after_events: int | None = None
    refuses: int = 0
    echoes_body: bool = False
    refusal: bytes | None = None
    template_shown: str | None = None
    paused: bool = False
    purges_busy: int = 0
    purge_seconds: float = 0.0
    purge_error: str | None = None
    tiers_told: dict[str, dict[str, int]] | None = None
    hides_cached: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class Call:
    """One request as the engine got it."""

    path: str
    headers: Headers
    body: dict[str, Any]

    @property
    def ticket(self) -> str | None:
        """The ticket it carried, if any."""
        found = (self.body.get("kv_transfer_params") or {}).get("scopekv")
        return found if isinstance(found, str) else None

    @property
    def salt(self) -> str:
        return str(self.body.get("cache_salt") or "")


@dataclass(slots=True, repr=False)
class Seen:
    """Completions that arrived, in order, and how many their callers gave up.

    `reads`: of each prefill with hits, when it was (monotonic seconds) and the tags of all blocks
    it read. `purges`: the pairs of each purge. `expires`: how often it was asked to expire.
    `queried_tokens`, `hit_tokens`: of all prompts, and of those what was read from a cache.
    """

    calls: list[Call] = field(default_factory=list)
    abandoned: int = 0
    running: int = 0
    reads: list[tuple[float, frozenset[Tag]]] = field(default_factory=list)
    purges: list[list[Any]] = field(default_factory=list)
    expires: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
