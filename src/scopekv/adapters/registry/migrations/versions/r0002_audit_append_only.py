"""The database itself refuses to change or remove an audit entry."""

from __future__ import annotations

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

_SQLITE = """
CREATE TRIGGER scopekv_audit_no_{verb} BEFORE {verb} ON scopekv_audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END
"""
_POSTGRES = (
    """
CREATE FUNCTION scopekv_audit_refuse() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$
""",
    """
CREATE TRIGGER scopekv_audit_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON scopekv_audit
FOR EACH STATEMENT EXECUTE FUNCTION scopekv_audit_refuse()
""",
)


def upgrade() -> None:
    """Add the triggers."""
    if op.get_bind().dialect.name == "sqlite":
        for verb in ("update", "delete"):
            op.execute(_SQLITE.format(verb=verb))
        return
    for statement in _POSTGRES:
        op.execute(statement)
