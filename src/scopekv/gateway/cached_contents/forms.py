"""The JSON of cached contents: Gemini's members in and out, its times, its errors."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec

from scopekv.errors import Misuse
from scopekv.gateway.http.messages import Failure
from scopekv.ports import CachedContent

TTL_SECONDS = 3600.0  # where none is given, as Gemini does
_DURATION = re.compile(r"([0-9]{1,10}(?:\.[0-9]{1,9})?)s\Z")
_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ALREADY_EXISTS",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


class _Part(msgspec.Struct, forbid_unknown_fields=True):
    text: str


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    parts: list[_Part]
    role: Literal["user", "model", "system"] | None = None


class End(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    """When it ends. One of both at most."""

    ttl: str | None = None
    expire_time: str | None = None

    def seconds(self, now: float) -> float | None:
        """From `now`; None where neither is given. Raises `Misuse`."""
        if self.ttl is not None and self.expire_time is not None:
            raise Misuse("give ttl or expireTime, not both")
        if self.ttl is not None:
            found = _DURATION.match(self.ttl)
            if found is None:
                raise Misuse('ttl is a number of seconds with an s, such as "3600s"')
            return float(found[1])
        if self.expire_time is None:
            return None
        try:
            at = datetime.fromisoformat(self.expire_time)
        except ValueError:
            at = None
        if at is None or at.tzinfo is None:
            raise Misuse('expireTime is a time such as "2027-01-31T12:00:00Z"')
        return at.timestamp() - now


class New(End, forbid_unknown_fields=True, rename="camel"):
    """The body of a creation. `audience` is ours: `org` for who may publish to it."""

    model: Annotated[str, msgspec.Meta(min_length=1, max_length=256)] = ""
    display_name: str = ""
    contents: list[_Content] = []
    system_instruction: _Content | None = None
    audience: Literal["user", "org"] = "user"

    def text(self) -> str:
        """The one text to keep. Raises `Misuse` for none, or for more than one."""
        given = [*self.contents, *([self.system_instruction] if self.system_instruction else [])]
        texts = [part.text for content in given for part in content.parts]
        if len(texts) != 1 or not texts[0]:
            raise Misuse(
                f"a cached content keeps one text, and this has {len(texts)}: give one part in "
                "contents or systemInstruction, and make one cached content for each text"
            )
        return texts[0]


def bare_model(name: str) -> str:
    """`models/NAME` or `NAME`."""
    bare = name.removeprefix("models/")
    if not bare:
        raise Misuse("model is missing: name one of GET /v1/models")
    return bare


def shown(content: CachedContent) -> dict[str, Any]:
    """One as its maker sees it. Its text is not told again."""
    record = content.record
    view: dict[str, Any] = {
        "name": f"cachedContents/{record.document.uid}",
        "model": f"models/{content.model}",
        "displayName": content.display_name,
        "createTime": _time(record.created_at),
        "updateTime": _time(record.changed_at),
        "expireTime": _time(content.expires_at),
        "audience": record.document.audience.kind.value,
    }
    if content.tokens is not None:
        view["usageMetadata"] = {"totalTokenCount": content.tokens}
    return view


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class GoogleFailure(Failure):
    """An error in the form of Google's APIs."""

    def body(self) -> bytes:
        kinds: Mapping[int, str] = _STATUS
        status = kinds.get(self.status, "INTERNAL")
        error = {"code": self.status, "message": self.message, "status": status}
        return json.dumps({"error": error}).encode()


def worded(failure: Failure) -> Failure:
    return GoogleFailure(*astuple(failure))
