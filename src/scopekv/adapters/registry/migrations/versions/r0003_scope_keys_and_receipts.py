"""Wrapped sealing keys per scope and epoch, and the receipts of revocations."""

from __future__ import annotations

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Index, LargeBinary, String, Text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the two tables."""
    op.create_table(
        "scopekv_scope_keys",
        Column("scope", LargeBinary(16), primary_key=True),
        Column("epoch", BigInteger, primary_key=True, autoincrement=False),
        Column("kind", String(16), nullable=False),
        Column("owner", LargeBinary, nullable=False),
        Column("account", LargeBinary(16), nullable=False),
        Column("wrapped", LargeBinary, nullable=False),
        Column("root_version", String(160), nullable=False),
        Column("noted_at", Double, nullable=False),
        Index("scopekv_scope_keys_owner", "owner", "epoch"),
        Index("scopekv_scope_keys_idle", "kind", "noted_at"),
        Index("scopekv_scope_keys_version", "root_version"),
    )
    op.create_table(
        "scopekv_receipts",
        Column("uid", String(64), primary_key=True),
        Column("at", Double, nullable=False),
        Column("actor", String(512), nullable=False),
        Column("subject", String(512), nullable=False),
        Column("tags", Text, nullable=False),
        Column("state", String(16), nullable=False),
        Column("lines", Text, nullable=False),
        Column("finished_at", Double),
        Index("scopekv_receipts_at", "at", "uid"),
        Index("scopekv_receipts_state", "state"),
    )
