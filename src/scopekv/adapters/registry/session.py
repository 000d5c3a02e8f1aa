"""One transaction as the tables' classes use it: running statements, counting changes."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection, Executable, update

from scopekv.adapters.registry import tables as t
from scopekv.errors import Misuse

Values: TypeAlias = Mapping[str, Any] | None


class Session:
    """A connection inside a transaction, its time, and whether it may write."""

    def __init__(self, connection: Connection, *, now: float, writable: bool) -> None:
        self._connection = connection
        self.now = now
        self._writable = writable

    def must_write(self) -> None:
        if not self._writable:
            raise Misuse("a read transaction of the registry changes nothing; use write()")

    def bump(self, counter: str) -> None:
        """Raise one of the `Versions`; every change does, so none is made while reading."""
        self.must_write()
        column = t.state.c[counter]
        self.run(update(t.state).values({column: column + 1}))

    def run(self, statement: Executable, values: Values = None) -> int:
        """Execute, and return how many rows it touched.

        `values` fill the parameters of a statement that was made once: a fifth of the cost.
        """
        return int(self._connection.execute(statement, values).rowcount)

    def rows(self, statement: Executable) -> Sequence[Any]:
        return self._connection.execute(statement).all()

    def first(self, statement: Executable, values: Values = None) -> Any:
        return self._connection.execute(statement, values).first()

    def one(self, statement: Executable) -> Any:
        return self._connection.execute(statement).one()

    @staticmethod
    def new_uid(kind: str) -> str:
        """128 random bits: never the same twice, and nothing to guess."""
        return f"{kind}_{secrets.token_hex(16)}"
