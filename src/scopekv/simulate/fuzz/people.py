"""Who there is in the world, what they write, and what becomes of documents and memberships."""

from __future__ import annotations

from random import Random

from scopekv.core.policy import Document, PartRole
from scopekv.core.scopes import Audience, Principal, Scope, ScopeKind
from scopekv.simulate.fuzz.deployment import Deployed
from scopekv.simulate.fuzz.gateway import Piece
from scopekv.simulate.fuzz.oracle import Label, Paper, Person
from scopekv.simulate.fuzz.revoker import Revoker

ORGS = ("acme", "bank")
NAMES = ("ann", "bob", "cat", "dan")
AUDIENCES = (
    ("public", "", ""),
    ("org", "acme", ""),
    ("group", "acme", "staff"),
    ("user", "bank", "cat"),
)
PAPERS_MAX = 6
# What everybody writes: the same words from all of them, so that only scopes keep them apart.
MESSAGES = tuple(tuple(range(500 + 40 * i, 500 + 40 * i + 3 + 2 * i)) for i in range(5))
INSTRUCTIONS = (tuple(range(300, 306)), tuple(range(300, 311)))


class Society:
    """People and documents, in the registry and in the oracle."""

    def __init__(self, deployed: Deployed, revoker: Revoker, dice: Random) -> None:
        self._deployed, self._revoker = deployed, revoker
        registry, oracle = deployed.registry, deployed.oracle
        for number, name in enumerate(NAMES):
            org = ORGS[number % len(ORGS)] if number < 2 else ORGS[number - 2]
            groups = {"staff"} if org == "acme" else set()
            oracle.people[name] = Person(name, org, groups)
            registry.principals[name] = _principal(oracle.people[name])
        for _ in range(3):
            self.publish(dice)

    @property
    def papers(self) -> list[Paper]:
        return list(self._deployed.oracle.papers.values())

    def publish(self, dice: Random) -> None:
        """A new document, or an old one's text under a name and audience of its own."""
        oracle = self._deployed.oracle
        if len(oracle.papers) < PAPERS_MAX:
            uid = f"paper-{len(oracle.papers)}"
            oracle.papers[uid] = Paper(uid, AUDIENCES[dice.randrange(len(AUDIENCES))])
            self._commit(oracle.papers[uid])

    def revise(self, paper: Paper) -> None:
        """Another text: what was kept of the old one ends."""
        self._end(paper)
        paper.revision += 1
        self._commit(paper)

    def readdress(self, paper: Paper, dice: Random) -> None:
        """Another audience: what was kept ends."""
        self._end(paper)
        paper.audience = AUDIENCES[dice.randrange(len(AUDIENCES))]
        self._commit(paper)

    def withdraw(self, paper: Paper) -> None:
        self._end(paper)
        paper.withdrawn = True
        self._commit(paper)

    def membership(self, person: Person, *, inside: bool) -> None:
        """In or out of the group; who goes out ends what is kept of the group's documents."""
        registry = self._deployed.registry
        registry.versions()  # `Unavailable` before anything changes
        group = [one for one in self.papers if one.audience == ("group", person.org, "staff")]
        if not inside and group:
            self._revoker.revoke([_owner(one) for one in group])
        (person.groups.add if inside else person.groups.discard)("staff")
        registry.principals[person.name] = _principal(person)
        registry.changed()

    def end_user(self, person: Person) -> None:
        """End everything kept of a user and its sessions."""
        scope = Scope(ScopeKind.USER, (person.org, person.name))
        self._revoker.revoke([(scope, ("user", person.name))])

    def end_org(self, org: str) -> None:
        self._revoker.revoke([(Scope(ScopeKind.ORG, (org,)), ("org", org))])

    def _end(self, paper: Paper) -> None:
        self._revoker.revoke([_owner(paper)])

    def _commit(self, paper: Paper) -> None:
        kind, org, name = paper.audience
        written = "/".join(one for one in (org, name) if one)
        audience = Audience.parse(f"{kind}:{written}" if written else kind)
        document = Document(paper.uid, audience, paper.withdrawn)
        self._deployed.registry.documents[paper.uid] = (document, "")
        self._deployed.registry.changed()


def prompt(papers: list[Paper], dice: Random) -> list[Piece]:
    """A prompt: maybe a document, the organisation's instructions, messages; maybe one more."""
    pieces = []
    if papers and dice.random() < 0.7:
        pieces.append(_copied(papers[dice.randrange(len(papers))], dice))
    if dice.random() < 0.6:
        words = INSTRUCTIONS[dice.randrange(len(INSTRUCTIONS))]
        pieces.append(Piece(PartRole.SYSTEM, words))
    pieces.extend(
        Piece(PartRole.MESSAGES, MESSAGES[number + dice.randrange(2)])
        for number in range(1 + dice.randrange(3))
    )
    if papers and dice.random() < 0.15:
        pieces.append(_copied(papers[dice.randrange(len(papers))], dice))
        pieces.append(Piece(PartRole.MESSAGES, MESSAGES[0]))
    return pieces


def labels(
    deployed: Deployed, person: Person, session: str, pieces: list[Piece]
) -> list[tuple[Label, int]]:
    """Whose each piece is, as the oracle sees it, with its length in tokens."""
    oracle = deployed.oracle
    own: Label = ("user", person.name, session)
    found: list[tuple[Label, int]] = []
    private = False
    for piece in pieces:
        label = own
        if piece.document is not None:
            paper = oracle.papers[piece.document]
            label = ("doc", paper.uid) if oracle.may_read(person, paper) else own
        elif piece.role is PartRole.SYSTEM and not private:
            label = ("org", person.org)
        private = private or label == own
        found.append((label, len(piece.tokens)))
    return found


def _copied(paper: Paper, dice: Random) -> Piece:
    """A document's present text. Two documents may have the same one."""
    first = 1000 + 100 * (int(paper.uid.rpartition("-")[2]) % 3) + 20 * (paper.revision % 4)
    role = PartRole.SYSTEM if dice.random() < 0.5 else PartRole.MESSAGES
    return Piece(role, tuple(range(first, first + 9 + paper.revision % 4)), paper.uid)


def _owner(paper: Paper) -> tuple[Scope, Label]:
    return Scope(ScopeKind.DOCUMENT, (paper.uid,)), ("doc", paper.uid)


def _principal(person: Person) -> Principal:
    return Principal(person.org, person.name, person.org, person.name, frozenset(person.groups))
