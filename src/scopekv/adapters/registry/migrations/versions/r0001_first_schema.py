"""The first schema."""

from __future__ import annotations

from alembic import op
from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    String,
    UniqueConstraint,
    text,
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make every table, and the one row of state."""
    _accounts()
    _groups_and_keys()
    _documents()
    _rules_and_epochs()
    _audit()


def _accounts() -> None:
    op.create_table(
        "scopekv_orgs",
        Column("uid", String(64), primary_key=True),
        Column("name", String(64), nullable=False, unique=True),
        Column("blocked", Boolean, nullable=False),
        Column("created_at", Double, nullable=False),
    )
    op.create_table(
        "scopekv_accounts",
        Column("uid", String(64), primary_key=True),
        Column(
            "org_uid",
            String(64),
            ForeignKey("scopekv_orgs.uid", ondelete="CASCADE"),
            nullable=False,
        ),
        Column("name", String(64), nullable=False),
        Column("service", Boolean, nullable=False),
        Column("blocked", Boolean, nullable=False),
        Column("created_at", Double, nullable=False),
        UniqueConstraint("org_uid", "name", name="scopekv_accounts_name"),
    )
    op.create_table(
        "scopekv_roles",
        Column(
            "account_uid",
            String(64),
            ForeignKey("scopekv_accounts.uid", ondelete="CASCADE"),
            primary_key=True,
        ),
        Column("role", String(32), primary_key=True),
    )


def _groups_and_keys() -> None:
    op.create_table(
        "scopekv_groups",
        Column("uid", String(64), primary_key=True),
        Column(
            "org_uid",
            String(64),
            ForeignKey("scopekv_orgs.uid", ondelete="CASCADE"),
            nullable=False,
        ),
        Column("name", String(64), nullable=False),
        UniqueConstraint("org_uid", "name", name="scopekv_groups_name"),
    )
    op.create_table(
        "scopekv_members",
        Column(
            "group_uid",
            String(64),
            ForeignKey("scopekv_groups.uid", ondelete="CASCADE"),
            primary_key=True,
        ),
        Column(
            "account_uid",
            String(64),
            ForeignKey("scopekv_accounts.uid", ondelete="CASCADE"),
            primary_key=True,
        ),
        Index("scopekv_members_account", "account_uid"),
    )
    op.create_table(
        "scopekv_keys",
        Column("uid", String(64), primary_key=True),
        Column(
            "account_uid",
            String(64),
            ForeignKey("scopekv_accounts.uid", ondelete="CASCADE"),
            nullable=False,
        ),
        Column("digest", LargeBinary(32), nullable=False, unique=True),
        Column("label", String(128), nullable=False),
        Column("created_at", Double, nullable=False),
        Column("expires_at", Double),
        Column("blocked", Boolean, nullable=False),
        Index("scopekv_keys_account", "account_uid"),
    )


def _documents() -> None:
    op.create_table(
        "scopekv_documents",
        Column("uid", String(64), primary_key=True),
        Column("org_uid", String(64), ForeignKey("scopekv_orgs.uid", ondelete="CASCADE")),
        Column("owner", String(64), nullable=False),
        Column("name", String(64), nullable=False),
        Column("audience", String(160), nullable=False),
        Column("revision", Integer, nullable=False),
        Column("digest", LargeBinary(32), nullable=False),
        Column("size_bytes", Integer, nullable=False),
        Column("text", LargeBinary, nullable=False),
        Column("withdrawn", Boolean, nullable=False),
        Column("created_at", Double, nullable=False),
        Column("changed_at", Double, nullable=False),
        Index(
            "scopekv_documents_live",
            "owner",
            "name",
            unique=True,
            sqlite_where=text("withdrawn = 0"),
            postgresql_where=text("NOT withdrawn"),
        ),
        Index("scopekv_documents_audience", "audience"),
    )
    op.create_table(
        "scopekv_revisions",
        Column(
            "document_uid",
            String(64),
            ForeignKey("scopekv_documents.uid", ondelete="CASCADE"),
            primary_key=True,
        ),
        Column("revision", Integer, primary_key=True),
        Column("digest", LargeBinary(32), nullable=False),
        Column("size_bytes", Integer, nullable=False),
        Column("created_at", Double, nullable=False),
    )


def _rules_and_epochs() -> None:
    op.create_table(
        "scopekv_rules",
        Column(
            "org_uid",
            String(64),
            ForeignKey("scopekv_orgs.uid", ondelete="CASCADE"),
            primary_key=True,
        ),
        Column("tools", String(16), nullable=False),
        Column("system", String(16), nullable=False),
        Column("messages", String(16), nullable=False),
    )
    op.create_table(
        "scopekv_epochs",
        Column("owner", LargeBinary, primary_key=True),
        Column("epoch", BigInteger, nullable=False),
    )


def _audit() -> None:
    op.create_table(
        "scopekv_audit",
        Column("seq", BigInteger, primary_key=True, autoincrement=False),
        Column("at_ms", BigInteger, nullable=False),
        Column("actor", String(512), nullable=False),
        Column("action", String(512), nullable=False),
        Column("resource", String(512), nullable=False),
        Column("outcome", String(512), nullable=False),
        Column("reason", String(512), nullable=False),
        Column("digest", LargeBinary(32), nullable=False),
    )
    state = op.create_table(
        "scopekv_state",
        Column(
            "id", Integer, CheckConstraint("id = 1", name="scopekv_state_one"), primary_key=True
        ),
        Column("principals", BigInteger, nullable=False),
        Column("documents", BigInteger, nullable=False),
        Column("rules", BigInteger, nullable=False),
        Column("epochs", BigInteger, nullable=False),
        Column("audit_seq", BigInteger, nullable=False),
        Column("audit_digest", LargeBinary, nullable=False),
    )
    op.bulk_insert(
        state,
        [
            {
                "id": 1,
                "principals": 0,
                "documents": 0,
                "rules": 0,
                "epochs": 0,
                "audit_seq": 0,
                "audit_digest": b"",
            }
        ],
    )
