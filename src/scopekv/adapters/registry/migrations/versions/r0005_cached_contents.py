"""Documents with an end of their own, made by accounts for themselves."""

from __future__ import annotations

from alembic import op
from sqlalchemy import Column, Double, ForeignKey, Index, Integer, String, Text

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    op.create_table(
        "scopekv_cached_contents",
        Column(
            "document_uid",
            String(64),
            ForeignKey("scopekv_documents.uid", ondelete="CASCADE"),
            primary_key=True,
        ),
        Column("account_uid", String(64), nullable=False),
        Column("model", String(256), nullable=False),
        Column("display_name", Text, nullable=False),
        Column("tokens", Integer),
        Column("expires_at", Double, nullable=False),
        Index("scopekv_cached_contents_account", "account_uid"),
        Index("scopekv_cached_contents_end", "expires_at"),
    )
