"""The store audit: read the tiers as a thief would, and tamper with them as one could."""

from scopekv.audit.store.run import audit_store
from scopekv.audit.store.target import Callers, MetricsPage, Secret, StoreSettings, StoreTarget

__all__ = [
    "Callers",
    "MetricsPage",
    "Secret",
    "StoreSettings",
    "StoreTarget",
    "audit_store",
]
