"""The registry over SQLite or PostgreSQL: principals, documents, rules, epochs, audit log."""

from scopekv.adapters.registry.registry import SqlRegistry, open_registry

__all__ = ["SqlRegistry", "open_registry"]
