"""Receipts: what an instance's answers to a purge amount to, and when a revocation is done (L6).

A receipt has a line for each tier of each instance. It is done only when every instance has
answered for all of its tiers at once, and nothing was busy or failed; silence is never success.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from scopekv.core.chains import Link
from scopekv.core.scopes import Scope, ScopeId, ScopeKind
from scopekv.errors import Corrupt, Misuse

WHOLE = "all"  # the tier of a line about an instance that told of none
IN_PROCESS = frozenset({"engine", "host"})  # memory that a restart empties
_OWNER = "owner"


class ReceiptState(StrEnum):
    PENDING = "pending"  # on its way
    INCOMPLETE = "incomplete"  # at least one line is not confirmed
    DONE = "done"  # gone everywhere


class LineState(StrEnum):
    BUSY = "busy"  # asked again until it is through
    INCOMPLETE = "incomplete"  # not confirmed, see the reason; asked again
    DONE = "done"  # gone from it
    CLOSED = "closed"  # an operator took it upon itself


class LineReason(StrEnum):
    """Why a line is not done. Closed."""

    UNREACHABLE = "unreachable"  # the instance does not answer
    TIMED_OUT = "timed_out"  # it took longer than a purge may
    NO_PLUGIN = "no_plugin"  # the instance runs without the plugin
    REFUSED = "refused"  # it refused the gateway's call
    BAD_ANSWER = "bad_answer"  # its answer makes no sense
    TIER_ERROR = "tier_error"  # the tier's store failed
    TIER_GONE = "tier_gone"  # the tier was taken out of the configuration
    FOREIGN_CONNECTOR = "foreign_connector"  # a KV connector that is not ours keeps copies
    GONE = "gone"  # the instance was taken out of the configuration


# What does not change until somebody changes the deployment: nobody waits for it.
LASTING = frozenset(
    {LineReason.NO_PLUGIN, LineReason.FOREIGN_CONNECTOR, LineReason.GONE, LineReason.TIER_GONE}
)
NEXT: Mapping[LineReason, str] = {
    LineReason.UNREACHABLE: "the instance cannot be reached: start it; it is purged before it gets "
    "requests again",
    LineReason.TIMED_OUT: "the instance does not answer: let it go on or restart it; it is asked "
    "again by itself",
    LineReason.NO_PLUGIN: "engine without the plugin: no request reads it again, but its memory "
    "cannot be confirmed; restart the engine, then `scopekv admin receipts close`",
    LineReason.REFUSED: "the instance refused the purge: check its api_key and version",
    LineReason.BAD_ANSWER: "the instance's answer says nothing: check its version",
    LineReason.TIER_ERROR: "the tier cannot be reached or written: repair the store; it is asked "
    "again by itself",
    LineReason.TIER_GONE: "the tier was taken out of the instance's configuration: delete its "
    "store, then `scopekv admin receipts close`",
    LineReason.FOREIGN_CONNECTOR: "a KV connector that is not ScopeKV's keeps copies: empty it, "
    "then `scopekv admin receipts close`",
    LineReason.GONE: "the instance was taken out of the configuration: make sure that it is "
    "stopped, then `scopekv admin receipts close`",
}


@dataclass(frozen=True, slots=True)
class Line:
    """One tier of one instance. `removed`: at least so many blocks or objects, over all calls.

    What a call removed whose answer came too late is not counted.
    """

    instance: str
    tier: str
    state: LineState
    removed: int
    reason: str  # a LineReason, or empty
    at: float


Lines = tuple[Line, ...]


def after_answer(before: Sequence[Line], instance: str, answer: object, at: float) -> Lines:
    """The lines after `instance` answered a purge with `answer`, its "lines" as it sent them.

    Every tier it named is as it says now; one that it named before and does not name any more is
    forgotten if a restart empties it, and else cannot be confirmed.
    """
    told = _told(answer)
    if told is None:
        return after_failure(before, instance, LineReason.BAD_ANSWER, at)
    old = {line.tier: line for line in before if line.instance == instance}
    made = []
    for tier, (removed, busy, error) in told.items():
        sum_removed = removed + (old[tier].removed if tier in old else 0)
        state, reason = _judged(tier, busy, error)
        made.append(Line(instance, tier, state, sum_removed, reason, at))
    for tier, line in old.items():
        if tier not in told and tier != WHOLE and tier not in IN_PROCESS:
            kept = line.state is LineState.DONE
            made.append(line if kept else _unconfirmed(line, LineReason.TIER_GONE, at))
    return _with(before, instance, made)


def after_failure(before: Sequence[Line], instance: str, reason: LineReason, at: float) -> Lines:
    """The lines after `instance` could not be asked: what was not done is not confirmed."""
    own = [line for line in before if line.instance == instance]
    if not own:
        own = [Line(instance, WHOLE, LineState.INCOMPLETE, 0, reason, at)]
    changed = [
        line if line.state is LineState.DONE else _unconfirmed(line, reason, at) for line in own
    ]
    if all(line.state is LineState.DONE for line in changed):  # a tier may have come since
        changed.append(Line(instance, WHOLE, LineState.INCOMPLETE, 0, reason, at))
    return _with(before, instance, changed)


def without(before: Sequence[Line], instances: Collection[str], at: float) -> Lines:
    """The lines when only `instances` are left in the configuration."""
    return tuple(
        line
        if line.instance in instances or line.state in (LineState.DONE, LineState.CLOSED)
        else _unconfirmed(line, LineReason.GONE, at)
        for line in before
    )


def closed(before: Sequence[Line], at: float) -> Lines:
    """The lines after an operator closed what is open."""
    return tuple(
        line if line.state is LineState.DONE else replace(line, state=LineState.CLOSED, at=at)
        for line in before
    )


def confirmed(lines: Sequence[Line], instance: str) -> bool:
    """Whether an instance is through with all of its tiers."""
    own = [line for line in lines if line.instance == instance]
    return bool(own) and all(line.state is LineState.DONE for line in own)


def state_of(lines: Sequence[Line], instances: Collection[str]) -> ReceiptState:
    """The whole. Done only if every instance is, of which there is at least one."""
    if any(line.state is LineState.INCOMPLETE for line in lines):
        return ReceiptState.INCOMPLETE
    asked = all(confirmed(lines, instance) for instance in instances)
    over = all(line.state is LineState.DONE for line in lines)
    return ReceiptState.DONE if instances and asked and over else ReceiptState.PENDING


def hopeless(lines: Sequence[Line]) -> bool:
    """Whether nothing is left that asking again would change soon."""
    open_lines = [line for line in lines if line.state is not LineState.DONE]
    return bool(open_lines) and all(line.reason in LASTING for line in open_lines)


def same(one: Sequence[Line], other: Sequence[Line]) -> bool:
    """Whether two lists say the same, whenever they were made."""
    return [replace(line, at=0.0) for line in one] == [replace(line, at=0.0) for line in other]


def name_pair(link: Link) -> str:
    """A (scope, epoch) as receipts keep it: what a purge takes, and nothing of its real name."""
    return f"{link.scope.hex()}:{link.epoch}"


def name_owner(owner: Scope, epoch: int) -> str:
    """An owning scope by its uids, for its own blocks even where no key was ever made for it."""
    return "/".join((_OWNER, owner.kind.value, *owner.path)) + f":{epoch}"


def owner_of(name: str) -> str | None:
    """The owner in what `name_owner` made, without the epoch; None for a pair."""
    return name.rpartition(":")[0] if name.startswith(f"{_OWNER}/") else None


def read_pair(name: str, secret: bytes) -> Link:
    """Read either form back; `secret` makes an owner opaque. Raises `Corrupt`."""
    text, _, epoch = name.rpartition(":")
    try:
        if text.startswith(f"{_OWNER}/"):
            _, kind, *path = text.split("/")
            return Link(Scope(ScopeKind(kind), tuple(path)).id(secret), int(epoch))
        scope = bytes.fromhex(text)
        if len(scope) == 16:
            return Link(ScopeId(scope), int(epoch))
    except (ValueError, Misuse) as error:
        raise Corrupt("a receipt in the registry names no scope where it should") from error
    raise Corrupt("a receipt in the registry names no scope where it should")


def _told(answer: object) -> dict[str, tuple[int, int, bool]] | None:
    """Tier to (removed, busy, failed), summed where a tier is named twice; None for nonsense."""
    if not isinstance(answer, list) or not answer:
        return None
    told: dict[str, tuple[int, int, bool]] = {}
    for line in answer:
        if not _fits(line):
            return None
        removed, busy, failed = told.get(line["tier"], (0, 0, False))
        failed = failed or line["error"] is not None
        told[line["tier"]] = (removed + line["removed"], busy + line["busy"], failed)
    return told


def _fits(line: Any) -> bool:
    return (
        isinstance(line, dict)
        and isinstance(line.get("tier"), str)
        and 0 < len(line["tier"]) <= 40
        and line["tier"] != WHOLE
        and all(type(line.get(name)) is int and line[name] >= 0 for name in ("removed", "busy"))
        and "error" in line
    )


def _judged(tier: str, busy: int, failed: bool) -> tuple[LineState, str]:
    if failed:
        foreign = tier == "connector"
        reason = LineReason.FOREIGN_CONNECTOR if foreign else LineReason.TIER_ERROR
        return LineState.INCOMPLETE, reason
    return (LineState.BUSY if busy else LineState.DONE), ""


def _unconfirmed(line: Line, reason: LineReason, at: float) -> Line:
    return replace(line, state=LineState.INCOMPLETE, reason=reason, at=at)


def _with(before: Sequence[Line], instance: str, lines: Sequence[Line]) -> Lines:
    """`before` with the instance's lines replaced; instances in the order of their first line."""
    names = list(dict.fromkeys([*(line.instance for line in before), instance]))
    others = {name: [line for line in before if line.instance == name] for name in names}
    others[instance] = list(lines)
    return tuple(line for name in names for line in others[name])
