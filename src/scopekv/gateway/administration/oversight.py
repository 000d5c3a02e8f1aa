"""Administration of role rules and epochs, and the audit log."""

from __future__ import annotations

from scopekv.core.administration import Action, Resource
from scopekv.core.policy import Level, RoleRules
from scopekv.core.scopes import Principal, Scope, ScopeKind
from scopekv.errors import Corrupt, Misuse
from scopekv.gateway.administration import views
from scopekv.gateway.administration.gate import Act, Gate, shown

_TARGETS = "org:ORG, user:ORG/NAME or document:REF"


class RuleAdministration:
    """How widely an organisation shares each role's text among its own."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def show(self, caller: Principal, org: str) -> views.RulesView:
        with self._gate.look(caller, Action.RULES_SHOW, f"rules:{org}") as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            return _rules(org, act.tx.rules.get(home.uid))

    def set(
        self,
        caller: Principal,
        org: str,
        *,
        tools: str | None,
        system: str | None,
        messages: str | None,
    ) -> views.RulesView:
        """Set the levels given (`org` or `user`); None leaves one as it is."""
        with self._gate.act(caller, Action.RULES_SET, f"rules:{org}") as act:
            home = act.org(org)
            act.require(Resource(home.uid))
            now = act.tx.rules.get(home.uid)
            rules = RoleRules(
                tools=_level(tools, now.tools),
                system=_level(system, now.system),
                messages=_level(messages, now.messages),
            )
            act.tx.rules.set(home.uid, rules)
            return _rules(org, rules)


class EpochAdministration:
    """Epochs: raising one makes every block cached under it unreachable."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def show(self, caller: Principal, target: str) -> views.EpochView:
        with self._gate.look(caller, Action.EPOCH_SHOW, f"epoch of {target}") as act:
            scope = self._scope(act, target)
            return views.EpochView(scope=target, epoch=act.tx.epochs.get(scope))

    def bump(self, caller: Principal, target: str) -> views.EpochView:
        """Raise the epoch of `org:ORG`, `user:ORG/NAME` or `document:REF`."""
        with self._gate.act(caller, Action.EPOCH_BUMP, f"epoch of {target}") as act:
            scope = self._scope(act, target)
            return views.EpochView(scope=target, epoch=act.tx.epochs.bump(scope))

    @staticmethod
    def _scope(act: Act, target: str) -> Scope:
        """Find and permit. The permission is asked before an account's name is looked up."""
        kind, _, rest = target.partition(":")
        org, _, name = rest.partition("/")
        if kind == "document" and rest:
            record = act.document(rest)
            act.require(Resource(record.org_uid))
            return record.document.scope
        if kind not in ("org", "user") or not org or (kind == "user") != bool(name):
            raise Misuse(f"{shown(target)} is not one of: {_TARGETS}")
        home = act.org(org)
        act.require(Resource(home.uid))
        if kind == "org":
            return Scope(ScopeKind.ORG, (home.uid,))
        return Scope(ScopeKind.USER, (home.uid, act.account(home, name).principal.uid))


class AuditAdministration:
    """Reading and checking the audit log: an operator's right."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def list(self, caller: Principal, *, after: int, limit: int) -> views.Page:
        """Entries after the number `after`, oldest first."""
        with self._gate.look(caller, Action.AUDIT_SHOW, "audit") as act:
            act.require(Resource(""))
            items = act.tx.audit.list(after, limit + 1)
            return views.page(items, limit, views.audit, lambda item: str(item.seq))

    def newest(self, caller: Principal, *, before: int | None, limit: int) -> views.Page:
        """Entries before the number `before` (None: the last ones), newest first."""
        with self._gate.look(caller, Action.AUDIT_SHOW, "audit") as act:
            act.require(Resource(""))
            end = act.tx.audit.last() if before is None else before - 1
            items = act.tx.audit.list(max(0, end - limit - 1), limit + 1) if end > 0 else ()
            shown_items = [item for item in items if item.seq <= end][::-1]
            return views.page(shown_items, limit, views.audit, lambda item: str(item.seq))

    def verify(self, caller: Principal, head: str | None) -> views.AuditCheck:
        """Recompute the chain; with `head` (SEQ:DIGEST, noted earlier) also that it is still in."""
        known = _head(head) if head is not None else None
        with self._gate.look(caller, Action.AUDIT_SHOW, "audit") as act:
            act.require(Resource(""))
            try:
                now = act.tx.audit.verify()
                if known is not None:
                    self._contains(act, *known)
            except Corrupt as error:
                return views.AuditCheck(intact=False, head="", detail=str(error))
            return views.AuditCheck(
                intact=True, head=f"{now.seq}:{now.digest.hex()}", detail=f"{now.seq} entries"
            )

    @staticmethod
    def _contains(act: Act, seq: int, digest: str) -> None:
        entry = next(iter(act.tx.audit.list(seq - 1, 1)), None)
        if entry is None or (entry.seq, entry.digest.hex()) != (seq, digest):
            raise Corrupt(f"entry {seq} is not the one noted earlier: the log was rewritten")


def _head(text: str) -> tuple[int, str]:
    seq, _, digest = text.partition(":")
    numbered = seq.isascii() and seq.isdigit() and len(seq) < 20
    if not (numbered and 0 < int(seq) < 2**63 and len(digest) == 64):
        raise Misuse("a head is SEQ:DIGEST as `audit verify` printed it")
    return int(seq), digest


def _level(text: str | None, now: Level) -> Level:
    if text is None:
        return now
    try:
        return Level(text)
    except ValueError as error:
        raise Misuse(f"a rule is `org` or `user`, not {shown(text)}") from error


def _rules(org: str, rules: RoleRules) -> views.RulesView:
    return views.RulesView(
        org=org,
        tools=rules.tools.value,
        system=rules.system.value,
        messages=rules.messages.value,
    )
