"""What a timing audit is asked to do, and the experiments that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scopekv.audit.results import NotTested
from scopekv.audit.statistics import equivalence_size
from scopekv.audit.timing.asking import Asker, Party
from scopekv.audit.timing.denial import Denied
from scopekv.audit.timing.experiments import Experiment, Identities, Order, Prefix
from scopekv.audit.timing.prompts import LETTERS_MIN
from scopekv.audit.timing.sampling import Run
from scopekv.audit.timing.withdrawal import Publisher, Withdrawn
from scopekv.errors import Misuse

LEVELS = ("organisation", "global", "document")  # names of the experiments that are `main`
LOOKS = (50, 100)  # and the size asked for
WITHDRAWALS = 30  # per arm: each publishes a document
DENIALS = 60  # the same; a difference may be a part of what a hit saves
IDENTITIES = 3  # end-user names of one key, where no further keys are given


@dataclass(frozen=True, slots=True, repr=False)
class Parties:
    """`victim`; `attackers`: of another organisation, the first one does most; `neighbour`: of the
    victim's organisation, another user. `admin`: may publish for everybody."""

    victim: Party
    attackers: tuple[Party, ...]
    neighbour: Party | None = None
    admin_key: str | None = None

    def __post_init__(self) -> None:
        if not self.attackers:
            raise Misuse("a timing audit needs an attacker")

    @property
    def attacker(self) -> Party:
        return self.attackers[0]

    @property
    def all(self) -> tuple[Party, ...]:
        near = () if self.neighbour is None else (self.neighbour,)
        return (self.victim, *near, *self.attackers)


@dataclass(frozen=True, slots=True)
class Sizes:
    """`samples`: per arm of the levels; `attack_samples`: of the other attacks, 0 leaves them out.
    `prompt_tokens`: about that many. `load`: requests under way all the time. `flood`: prompts,
    0 leaves it out. `alpha`: the chance of any false alarm, all experiments together. `only`: names
    of experiments; empty for all."""

    samples: int = 250
    attack_samples: int = 100
    equivalence: bool = False
    prompt_tokens: int = 256
    load: int = 0
    flood: int = 0
    alpha: float = 0.001
    only: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.samples < 10 or not 0 <= self.attack_samples <= 100_000:
            raise Misuse("samples are from 10 per arm, those of attacks from 0")
        if self.prompt_tokens < LETTERS_MIN or self.load < 0 or self.flood < 0:
            raise Misuse(f"a prompt has from {LETTERS_MIN} tokens; load and flood from 0")
        if not 0.0 < self.alpha < 1.0:
            raise Misuse(f"alpha is {self.alpha}; it lies between 0 and 1")

    def looks(self, *, main: bool) -> tuple[int, ...]:
        """The sizes per arm at which an experiment is judged."""
        last = self.samples if main else min(self.samples, self.attack_samples)
        extra = (equivalence_size(),) if main and self.equivalence else ()
        further = tuple(size for size in extra if size > last)
        return (*(size for size in LOOKS if size < last), last, *further)


@dataclass(frozen=True, slots=True, repr=False)
class Plan:
    """Experiments, and what is left out with the reason."""

    runs: tuple[Run, ...]
    not_tested: tuple[NotTested, ...]


def plan(
    asker: Asker,
    parties: Parties,
    sizes: Sizes,
    *,
    repeats: int,
    document: str,
    publisher: Publisher | None,
) -> Plan:
    """`repeats`: how often the victim sends each prompt of the levels. `document`: the exact text
    of a published one, or empty."""
    victim, attacker, near = parties.victim, parties.attacker, parties.neighbour
    made: list[Experiment] = []
    if near is not None:
        title = "Another user of the organisation cannot time what a user sent"
        made.append(Prefix("organisation", title, asker, victim, near, repeats))
    title = "Another organisation cannot time what a user sent"
    made.append(Prefix("global", title, asker, victim, attacker, repeats))
    if document:
        title = "Another organisation cannot time text after a public document that both use"
        made.append(Prefix("document", title, asker, victim, attacker, repeats, document))
    if sizes.attack_samples:
        made += _attacks(asker, parties)
        if publisher is not None:
            made.append(Withdrawn(asker, victim, attacker, publisher))
        if publisher is not None and publisher.empty_org:
            made.append(Denied(asker, attacker, publisher))
    wanted = [one for one in made if not sizes.only or one.name in sizes.only]
    runs = tuple(Run(one, _looks(one, sizes)) for one in wanted)
    left_out = _left_out(parties, sizes, document)
    left_out += [NotTested(one.name, "left out by the caller") for one in made if one not in wanted]
    if sizes.attack_samples and (publisher is None or not publisher.empty_org):
        why = "no --admin-key of an operator"
        left_out.append(NotTested("documents that the attacker may not read", why))
    return Plan(runs, tuple(left_out))


def _attacks(asker: Asker, parties: Parties) -> list[Experiment]:
    victim, attacker = parties.victim, parties.attacker
    first = Prefix(
        "first_touch",
        "The first use of another's whole prompt is already a miss",
        *(asker, victim, attacker),
        exact=True,
        main=False,
        usage_decides=True,
    )
    return [
        first,
        Identities(asker, victim, _identities(parties.attackers)),
        Order(asker, victim, attacker),
    ]


def _identities(attackers: Sequence[Party]) -> list[Party]:
    """All keys, or end-user names of the only one."""
    if len(attackers) > 1:
        return list(attackers)
    one = attackers[0]
    return [
        Party(f"{one.name} as user {number}", one.key, one.salt, f"timing-audit-{number}")
        for number in range(IDENTITIES)
    ]


def _looks(experiment: Experiment, sizes: Sizes) -> tuple[int, ...]:
    if isinstance(experiment, Withdrawn):
        return (min(WITHDRAWALS, sizes.attack_samples),)
    if isinstance(experiment, Denied):
        return (min(DENIALS, sizes.attack_samples),)
    return sizes.looks(main=experiment.main)


def _left_out(parties: Parties, sizes: Sizes, document: str) -> list[NotTested]:
    found = [
        NotTested("sessions that were revoked", "the isolation audit revokes them"),
        NotTested("what evictions of one's own prompts tell about others' load", "not built"),
    ]
    if parties.neighbour is None:
        found.append(NotTested("other users of the victim's organisation", "no --neighbour-key"))
    if not document:
        why = "no --document and no --admin-key to publish one"
        found.append(NotTested("neighbours behind a public document", why))
    if not sizes.attack_samples:
        what = "first touch, many identities, order of answers, withdrawn documents"
        found.append(NotTested(what, "--attack-samples 0"))
    elif parties.admin_key is None:
        found.append(NotTested("documents that were withdrawn", "no --admin-key"))
    if not sizes.flood:
        found.append(
            NotTested("flooding", "it slows everybody: ask for it with --flood and a number")
        )
    if not sizes.equivalence:
        found.append(
            NotTested("differences smaller than each check's mde_auc", "--equivalence bounds them")
        )
    return found
