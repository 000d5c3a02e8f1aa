"""Administration of published documents."""

from __future__ import annotations

from scopekv.core.administration import Action, Resource
from scopekv.core.scopes import Audience, AudienceKind, Principal
from scopekv.errors import TooLarge
from scopekv.gateway.administration import views
from scopekv.gateway.administration.ending import Ending
from scopekv.gateway.administration.gate import Act, Gate, name_of
from scopekv.ports import DocumentRecord

# Of one organisation's, where no operator publishes them: every gateway holds all in memory and
# reads them anew at each change, so what one tenant takes all others pay (L11).
ORG_DOCUMENTS_MAX = 10_000
ORG_BYTES_MAX = 256 << 20


class DocumentAdministration:
    """Documents. `ref` is an id, a name, or ORG/NAME.

    A change that ends what was kept of a document answers with the receipt of its purge.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def publish(
        self, caller: Principal, *, name: str, audience: str, text: str, org: str | None
    ) -> views.DocumentView:
        """Publish a text, stored exactly, for an audience.

        The owner is the caller's organisation. An operator's document belongs to `org`, else to
        the audience's organisation, else (public) to the deployment.
        """
        name_of(name, "document")
        wanted = Audience.parse(audience)
        label = f"document:{name} audience:{wanted}"
        with self._gate.act(caller, Action.DOCUMENT_PUBLISH, label) as act:
            owner_uid = self._owner(act, wanted, org)
            act.require(Resource(owner_uid, audiences=(wanted,)))
            _check_room(act, owner_uid, text)
            record = act.tx.documents.publish(owner_uid, name, wanted, text)
            act.resource += f" new:{record.document.uid}"
            return views.document(record)

    def list(self, caller: Principal, *, after: str, limit: int, withdrawn: bool) -> views.Page:
        """Those the caller may know of, by owner and name; with or without the withdrawn."""
        with self._gate.look(caller, Action.ORG_SHOW, "document:*") as act:
            act.require(Resource(act.caller.org_uid))
            known = [
                record
                for record in act.tx.documents.list()
                if (withdrawn or not record.document.withdrawn) and act.knows(record).allowed
            ]
            uids = [record.document.uid for record in known]
            start = uids.index(after) + 1 if after in uids else 0
            return views.page(
                known[start : start + limit + 1],
                limit,
                views.document,
                lambda record: record.document.uid,
            )

    def show(self, caller: Principal, ref: str) -> views.DocumentDetail:
        """The document without its text, with its epoch and the digests of its revisions."""
        with self._gate.look(caller, Action.DOCUMENT_SHOW, f"document:{ref}") as act:
            record = act.document(ref)
            act.require(Resource(record.org_uid, document=record.document))
            return views.DocumentDetail(
                document=views.document(record),
                epoch=act.tx.epochs.get(record.document.scope),
                revisions=[
                    views.revision(item) for item in act.tx.documents.revisions(record.document.uid)
                ],
            )

    def text(self, caller: Principal, ref: str) -> views.TextView:
        """The current text: for its audience and the administrators. The log notes each reading."""
        with self._gate.act(caller, Action.DOCUMENT_READ, f"document:{ref}") as act:
            record = act.document(ref)
            act.require(Resource(record.org_uid, document=record.document))
            uid = record.document.uid
            return views.TextView(id=uid, revision=record.revision, text=act.tx.documents.text(uid))

    def revise(self, caller: Principal, ref: str, text: str) -> views.DocumentView:
        """Replace the text; the old one's cache entries are never read again."""
        with self._gate.act(caller, Action.DOCUMENT_REVISE, f"document:{ref}") as act:
            record = self._changeable(act, ref)
            _check_room(act, record.org_uid, text, instead_of=record)
            return _ended(act, record, act.tx.documents.revise(record.document.uid, text))

    def set_audience(self, caller: Principal, ref: str, audience: str) -> views.DocumentView:
        """Change who may read it; the caller needs the right to both audiences."""
        wanted = Audience.parse(audience)
        label = f"document:{ref} audience:{wanted}"
        with self._gate.act(caller, Action.DOCUMENT_AUDIENCE, label) as act:
            record = self._changeable(act, ref, wanted)
            return _ended(act, record, act.tx.documents.set_audience(record.document.uid, wanted))

    def withdraw(self, caller: Principal, ref: str) -> views.DocumentView:
        """Take it out for good: its text is dropped, its cache entries never read again."""
        with self._gate.act(caller, Action.DOCUMENT_WITHDRAW, f"document:{ref}") as act:
            record = self._changeable(act, ref)
            return _ended(act, record, act.tx.documents.withdraw(record.document.uid))

    @staticmethod
    def _changeable(act: Act, ref: str, *audiences: Audience) -> DocumentRecord:
        record = act.document(ref)
        act.require(Resource(record.org_uid, audiences=(record.document.audience, *audiences)))
        return record

    @staticmethod
    def _owner(act: Act, audience: Audience, org: str | None) -> str:
        if org is not None:
            return act.org(org).uid
        if not act.operator:
            return act.caller.org_uid
        return "" if audience.kind is AudienceKind.PUBLIC else act.org(audience.path[0]).uid


def _ended(act: Act, before: DocumentRecord, now: DocumentRecord) -> views.DocumentView:
    """The document after an act which raised its epoch, unless it changed nothing."""
    if now == before:
        return views.document(now)
    ending = Ending(act)
    ending.ended(now.document.scope)
    made = ending.receipt(now.org_uid, f"document:{now.org}/{now.name}")
    return views.document(now, made.uid)


def _check_room(
    act: Act, org_uid: str, text: str, instead_of: DocumentRecord | None = None
) -> None:
    """Raises `TooLarge` where an organisation's documents would take too much."""
    if act.operator:
        return
    others = [
        one
        for one in act.tx.documents.list()
        if one.org_uid == org_uid and not one.document.withdrawn and one != instead_of
    ]
    size = len(text.encode("utf-8", "surrogatepass")) + sum(one.size_bytes for one in others)
    if len(others) >= ORG_DOCUMENTS_MAX or size > ORG_BYTES_MAX:
        raise TooLarge(
            f"an organisation has room for {ORG_DOCUMENTS_MAX} documents of {ORG_BYTES_MAX} bytes "
            "together: withdraw some, or ask an operator to publish this one"
        )
