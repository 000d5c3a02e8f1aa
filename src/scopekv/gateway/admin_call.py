"""One request of `/admin/v1` on its way to the service: bodies, query, route."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

import msgspec

from scopekv.core.scopes import Principal
from scopekv.errors import Misuse, TooLarge
from scopekv.gateway.administration import Administration
from scopekv.gateway.administration.views import LIMIT_DEFAULT, LIMIT_MAX

# A text of 4 MiB whose every character is written as a six-character escape, and some room.
BODY_BYTES_MAX = 25 * 1024 * 1024
QUERY_CHARS_MAX = 4096
_FIELD = re.compile(r"field `([^`]*)`|at `\$\.?([^`]*)`")


class _Body(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Every body: exact types, no field that is not named here."""


class Nothing(_Body, frozen=True):
    pass


class Named(_Body, frozen=True):
    name: str


class NewKey(_Body, frozen=True):
    owner: str
    label: str = ""
    expires_at: int | None = None


class NewOwnKey(_Body, frozen=True):
    label: str = ""
    expires_at: int | None = None


class Linked(_Body, frozen=True):
    issuer: str
    subject: str


class Rotation(_Body, frozen=True):
    overlap_seconds: int = 0


class NewDocument(_Body, frozen=True):
    name: str
    audience: str
    text: str
    org: str | None = None


class NewText(_Body, frozen=True):
    text: str


class NewAudience(_Body, frozen=True):
    audience: str


class NewRules(_Body, frozen=True):
    tools: Literal["org", "user"] | None = None
    system: Literal["org", "user"] | None = None
    messages: Literal["org", "user"] | None = None


class Target(_Body, frozen=True):
    scope: str


class Revocation(_Body, frozen=True):
    """What every revocation takes: how long to wait for instances before answering 202."""

    wait_seconds: Annotated[int, msgspec.Meta(ge=0, le=600)] = 30


class OfUser(Revocation, frozen=True, kw_only=True):
    org: str
    name: str
    erase: bool = False


class OfSession(Revocation, frozen=True, kw_only=True):
    org: str
    name: str
    session: str
    end_user: str = ""


class OfMembership(Revocation, frozen=True, kw_only=True):
    org: str
    group: str
    name: str


class OfOrg(Revocation, frozen=True, kw_only=True):
    org: str


class OfDocument(Revocation, frozen=True, kw_only=True):
    document: str


class Closing(_Body, frozen=True):
    reason: str


class BadField(Misuse):
    """A field of the request is at fault: its name goes into `param`."""

    def __init__(self, message: str, param: str | None) -> None:
        super().__init__(message)
        self.param = param


BodyType = TypeVar("BodyType", bound=_Body)


class Call:
    """One request on its way to the service; refuses what the route did not ask for."""

    def __init__(
        self,
        service: Administration,
        caller: Principal,
        values: dict[str, str],
        query: str,
        body: bytes,
    ) -> None:
        self.service = service
        self.caller = caller
        self._values = values
        self._query = _query(query)
        self._body = body

    def __getitem__(self, name: str) -> str:
        """A variable of the path."""
        return self._values[name]

    def body(self, kind: type[BodyType]) -> BodyType:
        """The body as `kind`. Raises `BadField` with the field's name, or `TooLarge`."""
        self.only_query()
        if len(self._body) > BODY_BYTES_MAX:
            raise TooLarge(f"the body has {len(self._body)} bytes; the limit is {BODY_BYTES_MAX}")
        try:
            return msgspec.json.decode(self._body or b"{}", type=kind)
        except msgspec.ValidationError as error:
            found = _FIELD.search(str(error))
            param = next((name for name in found.groups() if name), None) if found else None
            raise BadField(f"the body does not fit: {error}", param) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise BadField(f"the body is not JSON: {error}", None) from error

    def nothing(self) -> None:
        """The route takes no body: none, or an empty object."""
        self.body(Nothing)

    def only_query(self, *names: str) -> None:
        for name in self._query:
            if name not in names:
                known = f"; this route knows: {', '.join(names)}" if names else ""
                raise BadField(f"unknown query parameter {name[:80]!r}{known}", name[:80])

    def query(self, name: str) -> str | None:
        return self._query.get(name)

    def number(self, name: str, default: int, least: int, most: int) -> int:
        text = self._query.get(name, str(default))
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 20 else -1
        if not least <= number <= most:
            raise BadField(f"{name} must be a whole number from {least} to {most}", name)
        return number

    def limit(self) -> int:
        return self.number("limit", LIMIT_DEFAULT, 1, LIMIT_MAX)

    def flag(self, name: str) -> bool:
        text = self._query.get(name, "false")
        if text not in ("true", "false"):
            raise BadField(f"{name} must be true or false", name)
        return text == "true"

    def page(self, *more: str) -> dict[str, Any]:
        """`after` and `limit`, checked; `more` are further parameters of the route."""
        self.only_query("limit", "after", *more)
        return {"after": self._query.get("after", ""), "limit": self.limit()}


@dataclass(frozen=True, slots=True)
class Route:
    """`path` after the prefix, with {variables}; `status` of the answer."""

    method: str
    path: str
    answer: Callable[[Call], object]
    status: int = 200

    def match(self, parts: list[str]) -> dict[str, str] | None:
        """The variables of the path, if it is this route's."""
        wanted = self.path.strip("/").split("/")
        if len(wanted) != len(parts):
            return None
        values: dict[str, str] = {}
        for want, part in zip(wanted, parts, strict=True):
            if want.startswith("{"):
                values[want.strip("{}")] = part
            elif want != part:
                return None
        return values


def _query(text: str) -> dict[str, str]:
    if len(text) > QUERY_CHARS_MAX:
        raise TooLarge(f"the query has {len(text)} characters; the limit is {QUERY_CHARS_MAX}")
    values: dict[str, str] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        if name in values:
            raise BadField(f"query parameter {name[:80]!r} is given twice", name[:80])
        values[name] = value
    return values
