"""The fault simulation itself: clean seeds, seeds that found something once, planted bugs.

A failing seed prints the command that replays it: `scopekv simulate --fuzz --seeds 1 --seed N`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from scopekv.cli.main import main
from scopekv.core.following import Follower
from scopekv.errors import Misuse
from scopekv.simulate.fuzz.laws import LAWS
from scopekv.simulate.fuzz.operations import LENGTH, kept, operations
from scopekv.simulate.fuzz.runs import Found, run, run_many, shrink
from tests.sim.diary import diary
from tests.sim.planted.bugs import BUGS, Plant, jobs_are_not_reported, removals_go_unseen

ROOT = Path(__file__).parents[2]
SMOKE = 40
FOUND_WITHIN = 200
KEPT = json.loads((Path(__file__).parent / "seeds.json").read_text())
PLANTED = [(law, plant) for law, plants in BUGS.items() for plant in plants]


def report(found: list[Found]) -> str:
    return "\n".join(f"{one.words}\n  {one.command}" for one in found)


def test_a_smoke_of_seeds_is_clean() -> None:
    found = run_many(0, SMOKE)
    assert not found, report(found)


@pytest.mark.slow
@pytest.mark.parametrize(("first", "count"), [(SMOKE, 100 - SMOKE), (10_000, 500)])
def test_more_seeds_are_clean(first: int, count: int) -> None:
    found = run_many(first, count)
    assert not found, report(found)


@pytest.mark.parametrize("one", KEPT, ids=[str(one["seed"]) for one in KEPT])
def test_a_seed_that_found_something_once_is_clean(one: dict[str, str]) -> None:
    found = run(int(one["seed"]), kept(int(one["seed"]), one["operations"]))
    assert found is None, report([found])


def test_the_world_is_busy() -> None:
    """The positive control: blocks are read from everywhere, and revocations get done."""
    reads = {"engine": 0, "host": 0, "tier": 0}
    revocations = ended = 0
    for seed in range(16):
        kept_diary = diary(seed)
        for source, count in kept_diary.reads.items():
            reads[source] += count
        revocations += kept_diary.revocations
        ended += kept_diary.ended_well
    assert reads["engine"] > 50
    assert min(reads["host"], reads["tier"]) > 5
    assert revocations > 20
    assert ended > 150


def test_a_seed_repeats_itself_in_every_process() -> None:
    """Not even the order of sets may decide anything: each process hashes text differently."""
    seeds = ["1", "7"]
    told = {
        subprocess.run(
            [sys.executable, str(Path(__file__).parent / "diary.py"), *seeds],
            env=os.environ | {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT / "src")},
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert told == {f"{[diary(int(seed)).digest for seed in seeds]}\n"}


def test_every_law_has_a_planted_bug() -> None:
    assert set(BUGS) == {law.name for law in LAWS}


@pytest.mark.slow
@pytest.mark.parametrize(("law", "plant"), PLANTED, ids=[plant.__name__ for _, plant in PLANTED])
def test_a_planted_bug_is_found(law: str, plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    assert any(
        (found := run(seed)) is not None and found.law == law for seed in range(FOUND_WITHIN)
    ), f"{law} did not see it in {FOUND_WITHIN} seeds"


@pytest.mark.slow
def test_what_is_found_becomes_small_and_stays_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    removals_go_unseen(monkeypatch)
    found = next(one for seed in range(20) if (one := run(seed)) is not None)
    small = shrink(found)
    assert small.law == found.law == "index_exact"
    assert small.operations is not None
    assert 0 < len(small.operations) < LENGTH / 3
    again = run(small.seed, kept(small.seed, ",".join(map(str, small.operations))))
    assert again == small


def test_a_part_that_raises_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("as planted")

    monkeypatch.setattr(Follower, "take", broken)
    found = run_many(0, 3)
    assert found
    assert {one.law for one in found} == {"no_failure"}
    assert "as planted" in found[0].words


def test_operations_are_left_out_by_number() -> None:
    assert [one.number for one in kept(3, "1,4")] == [1, 4]
    assert kept(3, None) == operations(3)
    with pytest.raises(Misuse, match="not 'all'"):
        kept(3, "all")
    with pytest.raises(Misuse, match=f"0 to {LENGTH - 1}"):
        kept(3, str(LENGTH))


def test_the_command_says_how_many_and_what(monkeypatch: pytest.MonkeyPatch) -> None:
    clean = CliRunner().invoke(main, ["simulate", "--fuzz", "--seeds", "2", "--json"])
    assert clean.exit_code == 0, clean.output
    told = json.loads(clean.stdout)
    assert (told["seeds"], told["violations"], told["found"]) == (2, 0, [])
    jobs_are_not_reported(monkeypatch)
    wrong = CliRunner().invoke(
        main, ["simulate", "--fuzz", "--seeds", "4", "--seed", "1", "--json"]
    )
    assert wrong.exit_code == 1
    found = json.loads(wrong.stdout)
    assert found["violations"] == len(found["found"]) > 0
    replayed = CliRunner().invoke(main, found["found"][0]["command"].split()[1:])
    assert replayed.exit_code == 1
    assert found["found"][0]["words"] in replayed.stdout


def test_operations_are_of_one_seed() -> None:
    refused = CliRunner().invoke(main, ["simulate", "--fuzz", "--operations", "1"])
    assert refused.exit_code == 2
    assert "--seeds 1" in refused.stderr
