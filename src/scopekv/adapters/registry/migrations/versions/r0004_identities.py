"""Whose account a person of an identity provider has."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Double, LargeBinary, String

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "scopekv_identities",
        Column("key", LargeBinary(32), primary_key=True),
        Column("account_uid", String(64), nullable=False),
        Column("linked_at", Double, nullable=False),
    )
