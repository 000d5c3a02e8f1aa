"""One store, listed whole and read in part: what is in it, counted. Nothing is judged here."""

from __future__ import annotations

import random
import stat
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from scopekv.adapters.objects.claim import QUARANTINE, TEMPORARY
from scopekv.audit.store.guesses import Guesses
from scopekv.audit.store.media import MANIFEST, Found, Medium
from scopekv.audit.store.needles import Needle, Words, search
from scopekv.audit.store.patterns import shown_in
from scopekv.audit.store.randomness import Judge
from scopekv.core.chains import retention_of

OBJECT_BYTES_MAX = 4 << 20  # of one object that are searched
OVERDUE_SECONDS = 900.0  # a directory that nobody reads is cleared within ten minutes
UNFINISHED_SECONDS = 3600.0  # a file that is being written is done by then
_OTHERS_MAY = 0o077


@dataclass(frozen=True, slots=True, repr=False)
class Wanted:
    """What is looked for, and how much is read."""

    needles: Sequence[Needle]
    words: Words
    guesses: Guesses
    objects_max: int
    bytes_max: int
    now: float


@dataclass(slots=True)
class Examined:
    """What was found in one store. Counters go by what and spelling; nothing secret is kept."""

    kind: str
    place: str
    listed: list[Found] = field(default_factory=list)
    read: int = 0
    read_bytes: int = 0
    vanished: int = 0
    hits: Counter[str] = field(default_factory=Counter)
    confirmed: Counter[str] = field(default_factory=Counter)
    named: int = 0  # names that hold a word of the deployment
    owners: set[int] = field(default_factory=set)
    links: int = 0  # neither file nor folder
    unfinished: int = 0
    overdue: int = 0
    others: int = 0  # of another program
    manifests: int = 0
    judge: Judge = field(default_factory=Judge)

    @property
    def objects(self) -> list[Found]:
        return [one for one in self.listed if one.is_object]

    @property
    def quarantined(self) -> list[Found]:
        return [one for one in self.objects if QUARANTINE in one.parts]

    @property
    def size_bytes(self) -> int:
        return sum(one.size_bytes for one in self.objects)

    @property
    def loose(self) -> int:
        """Files, and folders that hold objects or chains, that others of the machine may use."""
        holding = {
            one.folder for one in self.listed if one.is_block and (one.is_object or one.tags)
        }
        return sum(
            one.mode is not None
            and bool(stat.S_IMODE(one.mode) & _OTHERS_MAY)
            and (not one.is_folder or one.name in holding)
            for one in self.listed
        )


def examine(
    medium: Medium, wanted: Wanted, first: Collection[str], dice: random.Random
) -> Examined:
    """List the store, then read `first` and as many others as fit, drawn at random.

    Blocks for as long as the store takes. Raises `Unavailable`.
    """
    made = Examined(medium.kind, medium.place)
    for one in medium.walk():
        made.listed.append(one)
        _note(made, one, wanted)
    others = [one for one in made.objects if one.name not in first]
    dice.shuffle(others)
    chosen = [one for one in made.objects if one.name in first] + others
    for one in chosen:
        if made.read >= wanted.objects_max or made.read_bytes >= wanted.bytes_max:
            break
        content = medium.read(one.name, OBJECT_BYTES_MAX)
        if content is None:
            made.vanished += 1  # a live store: evicted since it was listed
        else:
            _look(made, one, content, wanted)
    return made


def _note(made: Examined, one: Found, wanted: Wanted) -> None:
    """What name and status say."""
    if one.mode is not None:
        made.links += not (stat.S_ISREG(one.mode) or stat.S_ISDIR(one.mode))
    if one.uid is not None:
        made.owners.add(one.uid)
    if not one.is_object:
        made.others += not one.is_folder and made.kind != "directory"
        return
    how = next((found for part in one.parts if (found := wanted.guesses.confirmed_by(part))), None)
    if how is not None:
        made.confirmed[how] += 1
    name = one.name.encode("utf-8", "surrogateescape")
    for needle in search(name, wanted.needles):
        made.hits[f"{needle.what} in a name ({needle.spelling})"] += 1
    made.named += bool(wanted.words.within(one.name))
    _note_age(made, one, wanted.now)


def _note_age(made: Examined, one: Found, now: float) -> None:
    if one.stored_at is None:
        return
    age = now - one.stored_at
    if TEMPORARY in one.parts:
        made.unfinished += age > UNFINISHED_SECONDS
        return
    chain = one.chain or one.leaf.partition(".")[0]  # quarantined: <chain>.<name>
    kept = retention_of(chain)
    made.overdue += kept is not None and age > kept + OVERDUE_SECONDS


def _look(made: Examined, one: Found, content: bytes, wanted: Wanted) -> None:
    """What the content says."""
    made.read += 1
    made.read_bytes += len(content)
    for needle in search(content, wanted.needles):
        made.hits[f"{needle.what} ({needle.spelling})"] += 1
    for what in shown_in(content):
        made.hits[what] += 1
    if MANIFEST in one.leaf:
        made.manifests += 1
    elif TEMPORARY not in one.parts:  # one that is being written has holes
        made.judge.look(content)
