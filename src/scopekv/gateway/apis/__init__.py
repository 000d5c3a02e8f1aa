"""The completion APIs: how each says what a prompt is, and what an answer cost.

All are the engine's own; an API here reads a request as a chat, so that its parts get their scopes,
and leaves the answer's form to the engine.
"""

from __future__ import annotations

from scopekv.gateway.apis.api import Api
from scopekv.gateway.apis.chat import CHAT_API, COMPLETIONS_API
from scopekv.gateway.apis.messages import MESSAGES_API
from scopekv.gateway.apis.responses import RESPONSES_API

APIS = {api.path: api for api in (CHAT_API, COMPLETIONS_API, MESSAGES_API, RESPONSES_API)}

__all__ = ["APIS", "Api"]
