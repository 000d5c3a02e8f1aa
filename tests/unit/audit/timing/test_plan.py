"""Which experiments follow from who is known, and what is said of the rest."""

from __future__ import annotations

import pytest

from scopekv.audit.endpoint import Endpoint
from scopekv.audit.timing.asking import Asker, Party
from scopekv.audit.timing.experiments import Identities
from scopekv.audit.timing.plan import IDENTITIES, Parties, Plan, Sizes, plan
from scopekv.audit.timing.prompts import Letters
from scopekv.audit.timing.withdrawal import Publisher
from scopekv.errors import Misuse

VICTIM, ATTACKER, NEAR = Party("victim", "v"), Party("attacker", "a"), Party("neighbour", "n")
ALL = Parties(VICTIM, (ATTACKER,), NEAR, "admin")


def made(parties: Parties, sizes: Sizes, *, document: str = "") -> Plan:
    endpoint = Endpoint("http://127.0.0.1:9")
    asker = Asker(endpoint, "m", True, Letters("x", 64))
    publisher = Publisher(endpoint, "admin", "run") if parties.admin_key else None
    return plan(asker, parties, sizes, repeats=1, document=document, publisher=publisher)


def names(found: Plan) -> list[str]:
    return [run.experiment.name for run in found.runs]


def test_everything_is_tried_with_everybody_known() -> None:
    found = made(ALL, Sizes(flood=10, equivalence=True), document="a document")
    levels = ["organisation", "global", "document"]
    assert names(found) == [*levels, "first_touch", "identities", "order", "after_delete"]


def test_what_is_left_out_is_said() -> None:
    found = made(Parties(VICTIM, (ATTACKER,)), Sizes(attack_samples=0))
    assert names(found) == ["global"]
    said = " ".join(f"{one.what} {one.why}" for one in found.not_tested)
    for word in ("--neighbour-key", "--document", "--attack-samples", "--flood", "--equivalence"):
        assert word in said


def test_looks_grow_to_the_size_asked_for_and_on_to_equivalence() -> None:
    assert Sizes().looks(main=True) == (50, 100, 250)
    assert Sizes().looks(main=False) == (50, 100)
    assert Sizes(samples=30).looks(main=True) == (30,)
    assert Sizes(equivalence=True).looks(main=True) == (50, 100, 250, 1225)
    assert Sizes(equivalence=True).looks(main=False) == (50, 100)
    assert Sizes(samples=2000, equivalence=True).looks(main=True) == (50, 100, 2000)


def test_identities_are_the_keys_or_names_of_one_key() -> None:
    def identities(parties: Parties) -> list[Party]:
        runs = made(parties, Sizes()).runs
        return list(
            next(r.experiment for r in runs if isinstance(r.experiment, Identities)).identities
        )

    several = (ATTACKER, Party("attacker 2", "b"))
    assert identities(Parties(VICTIM, several)) == list(several)
    named = identities(Parties(VICTIM, (ATTACKER,)))
    assert {one.key for one in named} == {"a"}
    assert len({one.user for one in named}) == IDENTITIES


def test_sizes_that_make_no_sense_are_misuse() -> None:
    for wrong in ({"samples": 5}, {"prompt_tokens": 3}, {"alpha": 0.0}, {"load": -1}):
        with pytest.raises(Misuse):
            Sizes(**wrong)
    with pytest.raises(Misuse):
        Parties(VICTIM, ())
