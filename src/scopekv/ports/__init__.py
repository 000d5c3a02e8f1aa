"""What the program asks of the world: one Protocol per port, one contract suite per Protocol.

Adapters implement these and decide nothing. Contracts: tests/contracts.
"""

from scopekv.ports.audit import AuditEntry, AuditHead, AuditLog
from scopekv.ports.documents import (
    CachedContent,
    CachedContents,
    DocumentRecord,
    Documents,
    PublishedDocument,
    Revision,
)
from scopekv.ports.identity import Identities, SigningKey, TokenVerifier
from scopekv.ports.keys import (
    LEASES_PATH,
    KeyWrapper,
    LeaseSource,
    ScopeKeyRecord,
    ScopeKeys,
)
from scopekv.ports.objects import ObjectKey, ObjectStat, ObjectStore
from scopekv.ports.receipts import Receipt, ReceiptLine, Receipts
from scopekv.ports.registry import (
    Account,
    Accounts,
    ApiKey,
    Epochs,
    Group,
    Groups,
    KeyRecord,
    Keys,
    Org,
    Orgs,
    Registry,
    RegistryReader,
    RegistryTransaction,
    Rules,
    Versions,
)
from scopekv.ports.tallies import Tallies

__all__ = [
    "LEASES_PATH",
    "Account",
    "Accounts",
    "ApiKey",
    "AuditEntry",
    "AuditHead",
    "AuditLog",
    "CachedContent",
    "CachedContents",
    "DocumentRecord",
    "Documents",
    "Epochs",
    "Group",
    "Groups",
    "Identities",
    "KeyRecord",
    "KeyWrapper",
    "Keys",
    "LeaseSource",
    "ObjectKey",
    "ObjectStat",
    "ObjectStore",
    "Org",
    "Orgs",
    "PublishedDocument",
    "Receipt",
    "ReceiptLine",
    "Receipts",
    "Registry",
    "RegistryReader",
    "RegistryTransaction",
    "Revision",
    "Rules",
    "ScopeKeyRecord",
    "ScopeKeys",
    "SigningKey",
    "Tallies",
    "TokenVerifier",
    "Versions",
]
