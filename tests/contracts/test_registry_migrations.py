"""Every schema there ever was is brought to this one; a newer one is refused."""

from __future__ import annotations

from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from scopekv.adapters.registry import open_registry, schema
from scopekv.adapters.registry.database import connect
from scopekv.adapters.registry.tables import metadata
from scopekv.errors import ConfigError


def revisions() -> list[str]:
    """Every revision there ever was, oldest first."""
    return [script.revision for script in schema.scripts().walk_revisions()][::-1]


@pytest.mark.parametrize("start", ["base", *revisions()])
def test_every_earlier_schema_is_brought_to_this_one(url: str, start: str) -> None:
    database = connect(url)
    if start != "base":
        schema.upgrade(database, start)
        with database.write() as connection:
            connection.execute(
                text(
                    "INSERT INTO scopekv_orgs (uid, name, blocked, created_at) "
                    "VALUES ('org_old', 'acme', false, 1.5)"
                )
            )
    database.close()
    registry = open_registry(url)
    with registry.read() as view:
        org = view.orgs.get("acme")
    assert (org is None) == (start == "base")
    with registry.database.read() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": schema.VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []
    registry.close()


def test_a_newer_schema_is_refused(url: str) -> None:
    registry = open_registry(url)
    with registry.database.write() as connection:
        connection.execute(text("UPDATE scopekv_schema SET version_num = '9999'"))
    registry.close()
    with pytest.raises(ConfigError, match=r"9999.*newer ScopeKV.*0005"):
        open_registry(url)


def test_a_failed_migration_changes_nothing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = connect(url)

    def broken(*arguments: Any) -> Any:
        raise RuntimeError("half way")

    schema.upgrade(database, "0001")
    with monkeypatch.context() as patch:
        patch.setattr("alembic.script.ScriptDirectory._upgrade_revs", broken)
        with pytest.raises(RuntimeError, match="half way"):
            schema.upgrade(database)
    schema.upgrade(database)
    database.close()
