"""Names of conversations, users and organisations, as traces give them, numbered from 0."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from scopekv.simulate.traces.lines import Lines
from scopekv.simulate.traces.request import UNKNOWN

SESSION = ("session", "session_id", "conversation_id")
_USER = ("user", "user_id")
_ORG = ("org", "org_id", "tenant", "tenant_id")


class Numbers:
    """Counts names in order of appearance. Holds every name."""

    def __init__(self) -> None:
        self._found: dict[Hashable, int] = {}
        self._count = 0

    def of(self, name: Hashable) -> int:
        number = self._found.get(name)
        if number is None:
            number = self._found[name] = self.new()
        return number

    def join(self, name: Hashable, other: Hashable | None) -> int:
        """Give a name the number of another one, or one of its own."""
        number = self.new() if other is None else self.of(other)
        return self._found.setdefault(name, number)

    def new(self) -> int:
        """The number of something without a name."""
        self._count += 1
        return self._count - 1


class Sessions:
    """The conversation of each line; UNKNOWN where the first line names none.

    A line without one in a trace that has them is a conversation of its own. A turn of a chat
    belongs to the chat of `parent_chat_id` (Qwen-Bailian).
    """

    def __init__(self) -> None:
        self._numbers = Numbers()
        self._key: str | None = None
        self._begun = False

    def of(self, lines: Lines, fields: dict[str, Any]) -> int:
        """Raises Misuse with the line's place."""
        if {"chat_id", "parent_chat_id"} <= fields.keys():
            return self._turn(lines, fields)
        if not self._begun:
            self._key = _first(fields, SESSION)
        self._begun = True
        if self._key is None:
            if _first(fields, SESSION) is not None:
                raise lines.wrong("names a conversation, which the first line does not")
            return UNKNOWN
        name = fields.get(self._key)
        if name is None:
            return self._numbers.new()
        return self._numbers.of(_name(lines, name, self._key))

    def _turn(self, lines: Lines, fields: dict[str, Any]) -> int:
        parent = _name(lines, fields["parent_chat_id"], "parent_chat_id")
        chat = _name(lines, fields["chat_id"], "chat_id")
        return self._numbers.join(chat, None if parent in (-1, "-1") else parent)


class Senders:
    """(user, organisation) of each line; UNKNOWN, both, where the first line names neither.

    Where a trace has one of the two, each user is an organisation.
    """

    def __init__(self) -> None:
        self._users, self._orgs = Numbers(), Numbers()
        self._keys: tuple[str | None, str | None] | None = None

    def of(self, lines: Lines, fields: dict[str, Any]) -> tuple[int, int]:
        """Raises Misuse with the line's place."""
        keys = _first(fields, _USER), _first(fields, _ORG)
        if self._keys is None:
            self._keys = keys
        if keys != self._keys:
            raise lines.wrong("names its sender in other fields than the first line")
        user, org = keys
        if user is None and org is None:
            return UNKNOWN, UNKNOWN
        who = _name(lines, fields[user or org or ""], user or org or "")
        where = _name(lines, fields[org or user or ""], org or user or "")
        return self._users.of((where, who)), self._orgs.of(where)


def _first(fields: dict[str, Any], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if name in fields), None)


def _name(lines: Lines, value: object, key: str) -> Hashable:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise lines.wrong(f"has a {key!r} that is no text and no whole number")
    return value
