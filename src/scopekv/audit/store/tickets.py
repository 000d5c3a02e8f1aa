"""A ticket as whoever stole it reads it: nothing in it is encrypted, and nothing is verified."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass

from scopekv.core.blocks import Fingerprint
from scopekv.core.encoding import Value, decode
from scopekv.core.scopes import ScopeId
from scopekv.core.tickets import DOMAIN, SIGNATURE_BYTES, Grant
from scopekv.errors import Misuse

_NAMESPACE, _GRANTS = 4, 8  # places among the fields


@dataclass(frozen=True, slots=True)
class ReadTicket:
    """What of a ticket goes into hashes and names."""

    namespace: Fingerprint
    grants: tuple[Grant, ...]


def read_ticket(text: str) -> ReadTicket | None:
    """None for what is no ticket."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        fields = decode(DOMAIN, raw[1:-SIGNATURE_BYTES])
        namespace, grants = fields[_NAMESPACE], fields[_GRANTS]
        if not isinstance(namespace, bytes) or not isinstance(grants, tuple):
            return None
        return ReadTicket(Fingerprint(namespace), tuple(map(_grant, grants)))
    except (Misuse, binascii.Error, ValueError, IndexError):
        return None


def _grant(value: Value) -> Grant:
    if not isinstance(value, tuple) or len(value) != 4:
        raise Misuse("a grant has 4 fields")
    end, scope, epoch, digest = value
    if not isinstance(scope, bytes) or not isinstance(epoch, int) or not isinstance(digest, bytes):
        raise Misuse("a grant has a scope id, an epoch and a digest")
    if end is not None and not isinstance(end, int):
        raise Misuse("a grant ends at a number, or is open")
    return Grant(end, ScopeId(scope), epoch, digest)
