"""The audit log: append-only by the database itself, and chained so that tampering shows."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from scopekv.adapters.registry import SqlRegistry
from scopekv.errors import Conflict, Corrupt, Unavailable


def write_entries(registry: SqlRegistry, count: int = 5) -> None:
    for number in range(count):
        registry.audit(
            actor="acme/alice",
            action="key.create",
            resource=f"key {number}",
            outcome="allowed",
            reason="org_admin",
        )


def tamper(registry: SqlRegistry, statement: str) -> None:
    """What whoever owns the database can do: lift the trigger, then change a row."""
    with registry.database.write() as connection:
        if registry.database.sqlite:
            for verb in ("update", "delete"):
                connection.execute(text(f"DROP TRIGGER IF EXISTS scopekv_audit_no_{verb}"))
        else:
            connection.execute(text("ALTER TABLE scopekv_audit DISABLE TRIGGER ALL"))
        connection.execute(text(statement))


def test_entries_come_back_in_order_and_hold(registry: SqlRegistry) -> None:
    write_entries(registry)
    with registry.read() as view:
        entries = view.audit.list(0, 3)
        assert [entry.seq for entry in entries] == [1, 2, 3]
        assert entries[0].resource == "key 0"
        assert [entry.seq for entry in view.audit.list(3, 100)] == [4, 5]
        assert view.audit.last() == 5
        head = view.audit.verify()
        assert (head.seq, head.digest) == (5, view.audit.list(4, 1)[0].digest)


def test_an_empty_log_holds(registry: SqlRegistry) -> None:
    with registry.read() as view:
        assert view.audit.verify().seq == 0


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE scopekv_audit SET outcome = 'denied' WHERE seq = 2",
        "DELETE FROM scopekv_audit WHERE seq = 2",
        "DELETE FROM scopekv_audit",
    ],
)
def test_the_database_refuses_to_change_an_entry(registry: SqlRegistry, statement: str) -> None:
    write_entries(registry)
    with pytest.raises((Unavailable, Conflict)), registry.database.write() as connection:
        connection.execute(text(statement))
    with registry.read() as view:
        assert view.audit.verify().seq == 5


def test_postgresql_refuses_to_truncate(registry: SqlRegistry) -> None:
    if registry.database.sqlite:
        pytest.skip("SQLite has no TRUNCATE")
    write_entries(registry)
    with pytest.raises(Unavailable), registry.database.write() as connection:
        connection.execute(text("TRUNCATE scopekv_audit"))


@pytest.mark.parametrize(
    ("statement", "entry"),
    [
        ("UPDATE scopekv_audit SET outcome = 'denied' WHERE seq = 2", "entry 2"),
        ("UPDATE scopekv_audit SET at_ms = at_ms + 1 WHERE seq = 5", "entry 5"),
        ("DELETE FROM scopekv_audit WHERE seq = 3", "entry 3"),
        ("DELETE FROM scopekv_audit WHERE seq = 5", "ends at entry 4"),
        ("DELETE FROM scopekv_audit", "ends at entry 0"),
        # Moving a character from one field to the next leaves their joined text the same (I7).
        (
            "UPDATE scopekv_audit SET actor = 'acme/alicek', action = 'ey.create' WHERE seq = 4",
            "entry 4",
        ),
    ],
)
def test_tampering_shows(registry: SqlRegistry, statement: str, entry: str) -> None:
    write_entries(registry)
    tamper(registry, statement)
    with registry.read() as view, pytest.raises(Corrupt, match=entry):
        view.audit.verify()


def test_the_log_takes_any_text_and_no_secret(registry: SqlRegistry) -> None:
    secret = "sk-scopekv-" + "A1_-" * 11
    registry.audit(
        actor="a\0b\ud800", action=f"x {secret} y", resource="r" * 2000, outcome="é", reason=""
    )
    with registry.read() as view:
        (entry,) = view.audit.list(0, 10)
        view.audit.verify()
    assert secret not in repr(entry)
    assert entry.action == "x sk-scopekv-(cut) y"
    assert len(entry.resource) == 512
