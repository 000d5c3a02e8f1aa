"""The administration service: what the command line and the HTTP face both call."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from scopekv.gateway.administration.cached_contents import CachedContentAdministration
from scopekv.gateway.administration.documents import DocumentAdministration
from scopekv.gateway.administration.gate import Gate
from scopekv.gateway.administration.keys import KeyAdministration
from scopekv.gateway.administration.oversight import (
    AuditAdministration,
    EpochAdministration,
    RuleAdministration,
)
from scopekv.gateway.administration.principals import (
    AccountAdministration,
    GroupAdministration,
    OrgAdministration,
)
from scopekv.gateway.administration.revocation import (
    ReceiptAdministration,
    RevocationAdministration,
)
from scopekv.ports import Registry


class Administration:
    """Every administrative act, by what it is on. Blocking; thread-safe; holds no state.

    Each method looks the caller up anew, asks `core.administration.may`, acts and writes the audit
    entry in one transaction, and answers with a struct of `views`. An allowed read (but of a text)
    leaves no entry. Raises `ScopeDenied`, `NotFound`, `Conflict`, `Misuse`, `TooLarge`, and
    `Unavailable` with nothing done.
    """

    def __init__(
        self,
        registry: Registry,
        *,
        clock: Callable[[], float] = time.time,
        random: Callable[[int], bytes] = secrets.token_bytes,
    ) -> None:
        gate = Gate(registry)
        self.orgs = OrgAdministration(gate)
        self.accounts = AccountAdministration(gate)
        self.groups = GroupAdministration(gate)
        self.keys = KeyAdministration(gate, clock, random)
        self.documents = DocumentAdministration(gate)
        self.cached_contents = CachedContentAdministration(gate, clock)
        self.rules = RuleAdministration(gate)
        self.epochs = EpochAdministration(gate)
        self.revocations = RevocationAdministration(gate)
        self.receipts = ReceiptAdministration(gate, clock)
        self.audit = AuditAdministration(gate)
