"""The life of scope keys in the registry: noted, retired, destroyed, rewrapped.

Functions over the registry and a key wrapper, blocking. A wrapper is never called inside a
transaction: it may be a slow server, and writers wait for one another.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import NamedTuple

from scopekv.core.chains import Link, Tag, tag
from scopekv.core.encoding import encode
from scopekv.core.leases import ACCOUNT_BYTES, KEY_BYTES
from scopekv.core.scopes import Scope, ScopeId, ScopeKind
from scopekv.errors import ConfigError, Corrupt, ScopeKVError
from scopekv.ports import KeyWrapper, Registry, RegistryTransaction, ScopeKeyRecord

DEPLOYMENT_ACCOUNT = bytes(ACCOUNT_BYTES)  # whose share the deployment's own documents fill
REWRAP_BATCH = 200
_DAY = 86_400
_HOUR = 3_600
log = logging.getLogger("scopekv.keys")


@dataclass(frozen=True, slots=True)
class Retention:
    """Seconds that blocks of each kind of scope, and an unused key of it, are kept anywhere."""

    document: int = 7 * _DAY
    org: int = 7 * _DAY
    user: int = _DAY
    end_user: int = _DAY
    session: int = 4 * _HOUR

    def __post_init__(self) -> None:
        for one in fields(self):
            seconds = getattr(self, one.name)
            if not 60 <= seconds <= 366 * _DAY:
                raise ConfigError(
                    f"[retention] {one.name} is {seconds} seconds; it takes 60 to {366 * _DAY}"
                )

    def seconds(self, kind: ScopeKind) -> int:
        found: int = getattr(self, kind.value)
        return found


class ScopeEpoch(NamedTuple):
    """A scope in one epoch, by its real name: it stays in the gateway."""

    scope: Scope
    epoch: int


class Note(StrEnum):
    """What came of noting a scope."""

    KEPT = "kept"
    OVER = "over"  # its epoch is not the current one any more
    KEYLESS = "keyless"  # kept, but the root key is out of reach: nothing can be sealed for now


def account_of(secret: bytes, org_uid: str) -> bytes:
    """The keyed name of an organisation as tiers see it; zeros for the deployment itself."""
    if not org_uid:
        return DEPLOYMENT_ACCOUNT
    return hmac.digest(secret, encode("scopekv/account/1", org_uid), "sha256")[:ACCOUNT_BYTES]


def context_of(record: ScopeKeyRecord) -> bytes:
    """What a wrapped key is bound to: all of its record that decides who gets it, and as what."""
    return encode(
        "scopekv/scope-key/1",
        record.scope,
        record.epoch,
        record.kind,
        record.owner.kind.value,
        list(record.owner.path),
        record.account,
    )


def note(
    registry: Registry,
    wrapper: KeyWrapper,
    secret: bytes,
    wanted: Sequence[ScopeEpoch],
    now: float,
) -> list[Note]:
    """Make sure that each has a record, with a key in it. `secret`: what makes names opaque.

    Where the root key is out of reach the record has none yet: a revocation must know of the scope
    all the same, since engines keep its blocks in their own memory. The first note after that
    fills the key in. Cost: one read and one write transaction for all, and one wrap for each new
    key. Raises `Unavailable` where the registry is, with nothing kept.
    """
    with registry.read() as view:
        found = [view.scope_keys.get(s.id(secret), e) for s, e in wanted]
        accounts = [account_of(secret, _org_of(view, one.scope)) for one in wanted]
    records = [
        replace(one, noted_at=now) if one else _keyless(want, want.scope.id(secret), account, now)
        for one, want, account in zip(found, wanted, accounts, strict=True)
    ]
    try:
        for index, record in enumerate(records):
            if not record.wrapped:
                records[index] = _with_key(wrapper, record)
    except ScopeKVError as error:
        log.error("new scopes are not kept beyond engine memory: %s", error)
    with registry.write() as tx:
        return [
            _note(tx, record, known=known is not None)
            for record, known in zip(records, found, strict=True)
        ]


def _note(tx: RegistryTransaction, record: ScopeKeyRecord, *, known: bool) -> Note:
    if known and tx.scope_keys.get(record.scope, record.epoch) is None:
        return Note.OVER  # destroyed since it was looked at: it must not come back
    if not tx.scope_keys.note(record):
        return Note.OVER
    return Note.KEPT if record.wrapped else Note.KEYLESS


class Ended(NamedTuple):
    """The keys that were destroyed with an epoch, and the names of what they sealed."""

    epoch: int
    records: tuple[ScopeKeyRecord, ...]

    @property
    def tags(self) -> tuple[Tag, ...]:
        return tuple(tag(Link(record.scope, record.epoch)) for record in self.records)


def end_epoch(tx: RegistryTransaction, scope: Scope) -> Ended:
    """Raise the epoch of `scope.epoch_owner` and destroy the keys of those before.

    In the caller's write transaction, so that both commit with its audit entry, or neither.
    """
    return _erased(tx, scope, tx.epochs.bump(scope))


def erase_ended(tx: RegistryTransaction, scope: Scope) -> Ended:
    """`end_epoch` without raising: after an act that raised the epoch itself, as a withdrawal."""
    return _erased(tx, scope, tx.epochs.get(scope))


def expire(registry: Registry, retention: Retention, now: float) -> list[ScopeKeyRecord]:
    """Destroy keys that nobody used for their kind's retention time. At most 1,000 a kind.

    Call it again while it returns any. What they sealed is past its time in every tier.
    """
    gone: list[ScopeKeyRecord] = []
    for kind in ScopeKind:
        with registry.write() as tx:
            gone += tx.scope_keys.destroy_idle(kind.value, now - retention.seconds(kind))
    return gone


class Rewrapped(NamedTuple):
    """`unreadable`: keys that no version of the root key opens; `dropped`: those given up."""

    moved: int
    unreadable: int
    dropped: int


def rewrap(
    registry: Registry,
    wrapper: KeyWrapper,
    *,
    drop_unreadable: bool,
    progress: Callable[[int, int], None] = lambda _done, _left: None,
) -> Rewrapped:
    """Move every key to the current version of the root key, in batches, while all serve on.

    `progress(moved, left)` after each batch. The keys themselves stay, so leases and objects do;
    with `drop_unreadable` a scope whose key does not open gets a new one.
    """
    version, moved, dropped = wrapper.version, 0, 0
    stuck: dict[tuple[bytes, int], ScopeKeyRecord] = {}
    while True:
        with registry.read() as view:
            batch = view.scope_keys.wrapped_by_others(version, REWRAP_BATCH + len(stuck))
        batch = [record for record in batch if (record.scope, record.epoch) not in stuck]
        if not batch:
            break
        opened: list[tuple[ScopeKeyRecord, bytes]] = []
        for record in batch:
            try:
                key = wrapper.unwrap(record.wrapped, context_of(record))
            except Corrupt:
                stuck[record.scope, record.epoch] = record
            else:
                opened.append((record, wrapper.wrap(key, context_of(record))))
        with registry.write() as tx:
            for record, wrapped in opened:
                if _same(tx, record):  # else: destroyed, or made anew
                    tx.scope_keys.rewrap(record.scope, record.epoch, wrapped, version)
                    moved += 1
        with registry.read() as view:
            counts = view.scope_keys.counts()
        left = sum(n for (_, named), n in counts.items() if named != version)
        progress(moved, left - len(stuck))
    if drop_unreadable and stuck:
        # Never the row: until a gateway notes its scope again, in hours, a revocation would not
        # find it, nor reach what engines keep of it (L6).
        anew = [_with_key(wrapper, record) for record in stuck.values()]
        with registry.write() as tx:
            for record, made in zip(stuck.values(), anew, strict=True):
                if _same(tx, record):
                    tx.scope_keys.rewrap(made.scope, made.epoch, made.wrapped, made.root_version)
                    dropped += 1
    return Rewrapped(moved, len(stuck), dropped)


def counts(registry: Registry) -> Mapping[tuple[str, str], int]:
    """How many keys there are, by kind and root version."""
    with registry.read() as view:
        return view.scope_keys.counts()


def _same(tx: RegistryTransaction, record: ScopeKeyRecord) -> bool:
    now = tx.scope_keys.get(record.scope, record.epoch)
    return now is not None and now.wrapped == record.wrapped


def _erased(tx: RegistryTransaction, scope: Scope, epoch: int) -> Ended:
    records = tuple(tx.scope_keys.of_owner(scope.epoch_owner, epoch))
    tx.scope_keys.destroy(scope.epoch_owner, epoch)
    return Ended(epoch, records)


def _org_of(view: RegistryTransaction, scope: Scope) -> str:
    if scope.kind is not ScopeKind.DOCUMENT:
        return scope.path[0]
    document = view.documents.get(scope.path[0])
    return document.org_uid if document else ""


def _keyless(want: ScopeEpoch, scope: ScopeId, account: bytes, now: float) -> ScopeKeyRecord:
    return ScopeKeyRecord(
        scope=scope,
        epoch=want.epoch,
        kind=want.scope.kind.value,
        owner=want.scope.epoch_owner,
        account=account,
        wrapped=b"",
        root_version="",
        noted_at=now,
    )


def _with_key(wrapper: KeyWrapper, record: ScopeKeyRecord) -> ScopeKeyRecord:
    """The record with a new key. The version is read first, see `KeyWrapper.wrap`."""
    version = wrapper.version
    wrapped = wrapper.wrap(secrets.token_bytes(KEY_BYTES), context_of(record))
    return replace(record, wrapped=wrapped, root_version=version)
