"""The contract of `ports.ScopeKeys` and `ports.Receipts`, over SQLite and a real PostgreSQL."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.core.scopes import Scope, ScopeKind
from scopekv.errors import Conflict, Misuse, NotFound
from scopekv.ports import Receipt, ReceiptLine, ScopeKeyRecord

SECRET = b"s" * 32
USER = Scope(ScopeKind.USER, ("org_1", "usr_1"))
SESSION = Scope(ScopeKind.SESSION, ("org_1", "usr_1", "", "s1"))
ORG = Scope(ScopeKind.ORG, ("org_1",))


def record(scope: Scope = USER, epoch: int = 0, at: float = 100.0, **more: Any) -> ScopeKeyRecord:
    made = ScopeKeyRecord(
        scope=scope.id(SECRET),
        epoch=epoch,
        kind=scope.kind.value,
        owner=scope.epoch_owner,
        account=b"a" * 16,
        wrapped=b"wrapped\0\xff",
        root_version="file:1",
        noted_at=at,
    )
    return replace(made, **more)


def note(registry: SqlRegistry, *records: ScopeKeyRecord) -> list[bool]:
    with registry.write() as tx:
        return [tx.scope_keys.note(one) for one in records]


def kept(registry: SqlRegistry, one: ScopeKeyRecord) -> ScopeKeyRecord | None:
    with registry.read() as view:
        return view.scope_keys.get(one.scope, one.epoch)


def test_a_noted_key_is_kept_as_it_was(registry: SqlRegistry) -> None:
    one, other = record(), record(SESSION)
    assert note(registry, one, other) == [True, True]
    assert kept(registry, one) == one
    assert kept(registry, other) == other
    assert kept(registry, record(epoch=1)) is None
    assert "wrapped" not in repr(one)


def test_noting_again_keeps_the_first_key_and_the_latest_time(registry: SqlRegistry) -> None:
    note(registry, record())
    assert note(registry, record(wrapped=b"other", root_version="file:2", at=200.0)) == [True]
    assert note(registry, record(at=150.0)) == [True], "a clock that lags takes nothing back"
    assert kept(registry, record()) == record(at=200.0)


def test_a_record_without_a_key_gets_the_first_one(registry: SqlRegistry) -> None:
    bare: dict[str, Any] = {"wrapped": b"", "root_version": ""}
    assert note(registry, record(**bare)) == [True]
    assert kept(registry, record()) == record(**bare)
    with registry.read() as view:
        assert dict(view.scope_keys.counts()) == {}
        assert list(view.scope_keys.wrapped_by_others("file:2", 10)) == []
        assert list(view.scope_keys.of_owner(USER, 1)) == [record(**bare)]
    assert note(registry, record(at=50.0)) == [True], "also by a clock that lags"
    assert kept(registry, record()) == record()
    assert note(registry, record(at=200.0, **bare), record(wrapped=b"other", at=300.0))
    assert kept(registry, record()) == record(at=300.0), "and keeps it"


def test_a_key_of_an_epoch_that_is_over_is_not_kept(registry: SqlRegistry) -> None:
    registry.bump_epoch(SESSION)  # the user's
    assert note(registry, record(), record(SESSION)) == [False, False]
    assert note(registry, record(epoch=2)) == [False], "nor one of an epoch to come"
    assert kept(registry, record()) is None
    assert note(registry, record(epoch=1), record(SESSION, 1)) == [True, True]
    registry.bump_epoch(USER)
    assert note(registry, record(epoch=1, at=300.0)) == [False]
    assert kept(registry, record(epoch=1)) == record(epoch=1), "not refreshed"


def test_noting_changes_no_decision_and_destroying_does(registry: SqlRegistry) -> None:
    before = registry.versions()
    note(registry, record())
    note(registry, record(at=900.0))
    with registry.write() as tx:
        assert tx.scope_keys.destroy(USER, 0) == 0
    assert registry.versions() == before
    with registry.write() as tx:
        assert tx.scope_keys.destroy(USER, 1) == 1
    assert registry.versions().epochs == before.epochs + 1


def test_destroying_takes_the_owners_older_epochs_alone(registry: SqlRegistry) -> None:
    note(registry, record(), record(SESSION), record(ORG))
    registry.bump_epoch(USER)
    note(registry, record(epoch=1))
    with registry.write() as tx:
        assert set(tx.scope_keys.of_owner(USER, 1)) == {record(), record(SESSION)}
        assert tx.scope_keys.destroy(USER, 1) == 2
    assert kept(registry, record()) is None
    assert kept(registry, record(SESSION)) is None
    assert kept(registry, record(epoch=1)) is not None
    assert kept(registry, record(ORG)) is not None


def test_raising_and_destroying_roll_back_together(registry: SqlRegistry) -> None:
    note(registry, record())

    def fail() -> None:
        with registry.write() as tx:
            tx.scope_keys.destroy(USER, tx.epochs.bump(USER))
            raise RuntimeError("before the commit")

    with pytest.raises(RuntimeError, match="before the commit"):
        fail()
    assert kept(registry, record()) == record()
    assert registry.epoch(USER) == 0


def test_idle_keys_go_by_kind_the_longest_idle_first(
    registry: SqlRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scopekv.adapters.registry.scope_keys.IDLE_BATCH", 2)
    sessions = [
        record(Scope(ScopeKind.SESSION, ("org_1", "usr_1", "", str(n))), at=100.0 + n)
        for n in range(4)
    ]
    note(registry, record(at=1.0), *sessions)
    gone = []
    for _ in range(3):
        with registry.write() as tx:
            gone.append(list(tx.scope_keys.destroy_idle("session", 103.0)))
    assert gone == [sessions[:2], sessions[2:3], []]
    assert kept(registry, record()) is not None
    assert kept(registry, sessions[3]) is not None


def test_rewrapping_moves_to_another_root_version(registry: SqlRegistry) -> None:
    note(registry, record(), record(SESSION), record(ORG, root_version="file:2"))
    with registry.read() as view:
        assert dict(view.scope_keys.counts()) == {
            ("user", "file:1"): 1,
            ("session", "file:1"): 1,
            ("org", "file:2"): 1,
        }
        assert len(view.scope_keys.wrapped_by_others("file:2", 1)) == 1
        others = view.scope_keys.wrapped_by_others("file:2", 10)
    assert {one.kind for one in others} == {"user", "session"}
    with registry.write() as tx:
        for one in others:
            tx.scope_keys.rewrap(one.scope, one.epoch, b"new", "file:2")
    assert kept(registry, record()) == record(wrapped=b"new", root_version="file:2")
    with registry.read() as view:
        assert list(view.scope_keys.wrapped_by_others("file:2", 10)) == []


def test_a_read_transaction_changes_no_key(registry: SqlRegistry) -> None:
    with registry.read() as view:
        for change in (
            lambda: view.scope_keys.note(record()),
            lambda: view.scope_keys.destroy(USER, 5),
            lambda: view.scope_keys.destroy_idle("user", 1.0),
            lambda: view.scope_keys.rewrap(record().scope, 0, b"", ""),
            lambda: view.receipts.create("a", "s", []),
        ):
            with pytest.raises(Misuse):
                change()


def test_of_racing_gateways_one_makes_the_key(url: str) -> None:
    registries = [open_registry(url) for _ in range(2)]
    start = threading.Barrier(8)

    def run(number: int) -> None:
        start.wait()
        note(registries[number % 2], record(wrapped=bytes([number])))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = [kept(registry, record()) for registry in registries]
    assert found[0] is not None
    assert found[0] == found[1]
    for registry in registries:
        registry.close()


LINE = ReceiptLine("engine-0", "directory", "busy", 3, "in_flight", 12.5)


def create(registry: SqlRegistry, subject: str = "user:acme/alice") -> Receipt:
    with registry.write() as tx:
        return tx.receipts.create("hq/root", subject, ["00" * 12, "11" * 12])


def test_a_receipt_is_pending_until_it_is_done(registry: SqlRegistry) -> None:
    made = create(registry)
    assert (made.actor, made.subject, made.state) == ("hq/root", "user:acme/alice", "pending")
    assert (made.tags, made.lines, made.finished_at) == (("00" * 12, "11" * 12), (), None)
    with registry.write() as tx:
        now = tx.receipts.update(made.uid, "incomplete", [LINE])
        assert (now.state, now.lines, now.finished_at) == ("incomplete", (LINE,), None)
        assert list(tx.receipts.pending()) == [now]
    line = replace(LINE, state="done", reason="")
    with registry.write() as tx:
        done = tx.receipts.update(made.uid, "done", [line])
    assert done.lines == (line,)
    assert done.finished_at is not None
    with registry.read() as view:
        assert view.receipts.get(made.uid) == done
        assert list(view.receipts.pending()) == []
    with registry.write() as tx, pytest.raises(Conflict):
        tx.receipts.update(made.uid, "pending", [])
    with registry.write() as tx, pytest.raises(Misuse):
        tx.receipts.update(create_in(tx), "perhaps", [])
    with registry.write() as tx, pytest.raises(NotFound):
        tx.receipts.update("rcp_none", "done", [])


def create_in(tx: Any) -> str:
    uid: str = tx.receipts.create("a", "s", []).uid
    return uid


def test_receipts_are_listed_newest_first(registry: SqlRegistry) -> None:
    made = [create(registry, f"session {number}") for number in range(5)]
    newest = sorted(made, key=lambda one: (one.at, one.uid), reverse=True)
    with registry.read() as view:
        assert list(view.receipts.list("", 3)) == newest[:3]
        assert list(view.receipts.list(newest[2].uid, 3)) == newest[3:]
        assert list(view.receipts.pending()) == newest[::-1]
        assert view.receipts.get("rcp_none") is None
