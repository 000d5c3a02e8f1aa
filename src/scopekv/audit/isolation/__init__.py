"""The isolation audit: who can reuse whose work, in every tier, tried both ways.

caller x owner x scope kind x tier x endpoint x adapter: `matrix` says what there is to try,
`batches` tries it, `cells` counts. `changes`, `fields`, `tickets`, `crossings` attack further.
"""

from scopekv.audit.isolation.run import audit_isolation
from scopekv.audit.isolation.target import (
    EngineAccess,
    Forge,
    IsolationSettings,
    IsolationTarget,
    Member,
    Place,
    Registrar,
)

__all__ = [
    "EngineAccess",
    "Forge",
    "IsolationSettings",
    "IsolationTarget",
    "Member",
    "Place",
    "Registrar",
    "audit_isolation",
]
