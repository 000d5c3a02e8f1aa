"""The registry's tables as of the newest migration (contract: the two agree).

Texts are bytes: PostgreSQL text cannot hold NUL, and a document is stored exactly. uids are
random and never used twice, so what is made anew under an old name inherits nothing.
"""

from __future__ import annotations

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
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

metadata = MetaData()

# One row. The counters rise with every change; the audit head shows a log cut short.
state = Table(
    "scopekv_state",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="scopekv_state_one"), primary_key=True),
    Column("principals", BigInteger, nullable=False),
    Column("documents", BigInteger, nullable=False),
    Column("rules", BigInteger, nullable=False),
    Column("epochs", BigInteger, nullable=False),
    Column("audit_seq", BigInteger, nullable=False),
    Column("audit_digest", LargeBinary, nullable=False),
)

orgs = Table(
    "scopekv_orgs",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column("name", String(64), nullable=False, unique=True),
    Column("blocked", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
)

# Users and service accounts share their names, because audiences name either: user:acme/alice.
accounts = Table(
    "scopekv_accounts",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column(
        "org_uid", String(64), ForeignKey("scopekv_orgs.uid", ondelete="CASCADE"), nullable=False
    ),
    Column("name", String(64), nullable=False),
    Column("service", Boolean, nullable=False),
    Column("blocked", Boolean, nullable=False),
    Column("created_at", Double, nullable=False),
    UniqueConstraint("org_uid", "name", name="scopekv_accounts_name"),
)

roles = Table(
    "scopekv_roles",
    metadata,
    Column(
        "account_uid",
        String(64),
        ForeignKey("scopekv_accounts.uid", ondelete="CASCADE"),
        primary_key=True,
    ),
    Column("role", String(32), primary_key=True),
)

groups = Table(
    "scopekv_groups",
    metadata,
    Column("uid", String(64), primary_key=True),
    Column(
        "org_uid", String(64), ForeignKey("scopekv_orgs.uid", ondelete="CASCADE"), nullable=False
    ),
    Column("name", String(64), nullable=False),
    UniqueConstraint("org_uid", "name", name="scopekv_groups_name"),
)

members = Table(
    "scopekv_members",
    metadata,
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

keys = Table(
    "scopekv_keys",
    metadata,
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

# No foreign key: a link outlives its account, so that whoever was deleted stays out.
identities = Table(
    "scopekv_identities",
    metadata,
    Column("key", LargeBinary(32), primary_key=True),
    Column("account_uid", String(64), nullable=False),
    Column("linked_at", Double, nullable=False),
)

# org_uid is null for the deployment's own documents; owner is org_uid or "", for uniqueness.
documents = Table(
    "scopekv_documents",
    metadata,
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

revisions = Table(
    "scopekv_revisions",
    metadata,
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

# A document that ends by itself. No foreign key to its account: what one left behind still ends.
cached_contents = Table(
    "scopekv_cached_contents",
    metadata,
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

rules = Table(
    "scopekv_rules",
    metadata,
    Column(
        "org_uid", String(64), ForeignKey("scopekv_orgs.uid", ondelete="CASCADE"), primary_key=True
    ),
    Column("tools", String(16), nullable=False),
    Column("system", String(16), nullable=False),
    Column("messages", String(16), nullable=False),
)

# The owner is a canonical encoding of the scope, so scopes that print alike stay distinct.
epochs = Table(
    "scopekv_epochs",
    metadata,
    Column("owner", LargeBinary, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)

# Sealing keys, wrapped by the root key. A deleted row is overwritten (secure_delete), and what its
# key sealed is unreadable for good.
scope_keys = Table(
    "scopekv_scope_keys",
    metadata,
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

# `tags` and `lines` are JSON: they are written and read whole.
receipts = Table(
    "scopekv_receipts",
    metadata,
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

audit = Table(
    "scopekv_audit",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("actor", String(512), nullable=False),
    Column("action", String(512), nullable=False),
    Column("resource", String(512), nullable=False),
    Column("outcome", String(512), nullable=False),
    Column("reason", String(512), nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
)
