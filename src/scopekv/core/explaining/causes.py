"""Closed codes of causes, and what to do about each.

Nothing here says that another scope holds something (L10): a cause is about the caller's own two
prompts, or about what became of the caller's own blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from scopekv.errors import Misuse


class MissCause(StrEnum):
    """Why tokens that might have come from the cache were computed."""

    TIME = "time"
    IDENTIFIER = "identifier"
    USER_FIELD = "user_field"
    AGENT_NONCE = "agent_nonce"
    TOOL_ORDER = "tool_order"
    TOOL_SCHEMA_ORDER = "tool_schema_order"
    TOOLS_CHANGED = "tools_changed"
    WHITE_SPACE = "white_space"
    UNICODE_FORM = "unicode_form"
    SYSTEM_CHANGED = "system_changed"
    HISTORY_EDITED = "history_edited"
    HISTORY_DROPPED = "history_dropped"
    HISTORY_SUMMARISED = "history_summarised"
    PRIVATE_FIRST = "private_first"
    TEMPLATE_CHANGED = "template_changed"
    MODEL_CHANGED = "model_changed"
    BLOCK_ROUNDING = "block_rounding"
    BELOW_MINIMUM = "below_minimum"
    COLD = "cold"
    EXPIRED = "expired"
    EVICTED = "evicted"
    ROUTED_ELSEWHERE = "routed_elsewhere"
    TIER_TOO_SLOW = "tier_too_slow"
    REVOKED = "revoked"
    ENGINE_WITHOUT_PLUGIN = "engine_without_plugin"


class Certainty(StrEnum):
    CONFIRMED = "confirmed"
    SUSPECTED = "suspected"


FIXES: dict[MissCause, str] = {
    MissCause.TIME: "move the date or time behind what stays the same, into the last message, or "
    "leave out what changes most often",
    MissCause.IDENTIFIER: "move the identifier behind what stays the same, or out of the prompt",
    MissCause.USER_FIELD: "move what is said of the user behind the text that all users share",
    MissCause.AGENT_NONCE: "have the agent leave out the line that changes with every request, or "
    "move it behind the instructions",
    MissCause.TOOL_ORDER: "send the tools in one order always, for example sorted by name",
    MissCause.TOOL_SCHEMA_ORDER: "write the tools' schemas with their keys in one order always",
    MissCause.TOOLS_CHANGED: "send the same tools with every request of a conversation, and choose "
    "among them with tool_choice",
    MissCause.WHITE_SPACE: "build the prompt with the same blanks and line ends every time",
    MissCause.UNICODE_FORM: "bring texts into one Unicode form (NFC) before sending them",
    MissCause.SYSTEM_CHANGED: "keep the system text as it is during a conversation; add what is "
    "new in a later message",
    MissCause.HISTORY_EDITED: "append to a conversation, do not rewrite what was sent before",
    MissCause.HISTORY_DROPPED: "keep the first messages; where the context is full, drop in large "
    "steps and rarely",
    MissCause.HISTORY_SUMMARISED: "summarise rarely, and keep the summary as it is from then on",
    MissCause.PRIVATE_FIRST: "put the text that stays the same, such as a document, before the "
    "question",
    MissCause.TEMPLATE_CHANGED: "ask the operator for a chat template that puts no date into the "
    "prompt, or set the date in your own last message",
    MissCause.MODEL_CHANGED: "ask the same model and adapter: caches are never shared between them",
    MissCause.BLOCK_ROUNDING: "nothing: only whole blocks are shared, and the common part is "
    "shorter than one",
    MissCause.BELOW_MINIMUM: "nothing: the prompt is shorter than one block",
    MissCause.COLD: "nothing: it is the first prompt of its kind; the next one can use it",
    MissCause.EXPIRED: "ask again sooner, or ask the operator for a longer retention",
    MissCause.EVICTED: "ask again sooner, or ask the operator for more memory or another tier",
    MissCause.ROUTED_ELSEWHERE: "nothing: waiting for the instance that had it would have taken "
    "longer",
    MissCause.TIER_TOO_SLOW: "nothing: computing it again was faster than fetching it",
    MissCause.REVOKED: "nothing: the permission or the document changed; the cache starts anew",
    MissCause.ENGINE_WITHOUT_PLUGIN: "ask the operator: this engine runs without ScopeKV's plugin, "
    "so only whole prompts of your own are shared",
}


@dataclass(frozen=True, slots=True, repr=False)
class Cause:
    """One cause.

    `path`: JSON path of the text in the request, empty for what is not the request's. `token`:
    index of the first token that could not be used. `tokens_lost`: how many tokens after it stay
    the same and were computed all the same; an estimate within the piece where the prompts part.
    `before`, `after`: the caller's own words there, earlier and now, cut short.
    """

    code: MissCause
    certainty: Certainty
    path: str
    token: int
    tokens_lost: int
    before: str = ""
    after: str = ""

    def __post_init__(self) -> None:
        if self.token < 0 or self.tokens_lost < 0:
            raise Misuse("a cause's token and loss are 0 or more")

    @property
    def fix(self) -> str:
        return FIXES[self.code]
