"""What the audit changes it puts back, and nothing else does it touch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from scopekv.audit.store.files import DirectoryMedium
from scopekv.audit.store.tampers import TAMPERS, Hand, Tamper
from scopekv.audit.store.workbench import Workbench
from scopekv.errors import Misuse

CHAIN = "r3600-" + "ab" * 12


@pytest.fixture
def medium(tmp_path: Path) -> DirectoryMedium:
    dice = random.Random(1)
    (tmp_path / CHAIN).mkdir(mode=0o700)
    (tmp_path / ".quarantine").mkdir(mode=0o700)
    for name in ("one", "two", "theirs"):
        (tmp_path / CHAIN / name).write_bytes(dice.randbytes(200))
    return DirectoryMedium(tmp_path)


def bench_of(medium: DirectoryMedium, *names: str) -> Workbench:
    return Workbench(medium, [one for one in medium.walk() if one.is_object and one.leaf in names])


def test_everything_is_put_back(medium: DirectoryMedium, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    bench = bench_of(medium, "one", "two")
    bench.change({f"{CHAIN}/one": b"changed", f"{CHAIN}/two": None})
    aside = tmp_path / ".quarantine" / f"{CHAIN}.one"
    aside.write_bytes(b"changed")  # as the tier sets it aside
    bench.put_back()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    bench.change({f"{CHAIN}/one": b"changed"})
    assert (tmp_path / CHAIN / "one").read_bytes() == before[tmp_path / CHAIN / "one"]


def test_what_a_tier_wrote_anew_stays(medium: DirectoryMedium, tmp_path: Path) -> None:
    bench = bench_of(medium, "one")
    bench.change({f"{CHAIN}/one": b"changed"})
    (tmp_path / CHAIN / "one").write_bytes(b"written anew")
    bench.put_back()
    assert (tmp_path / CHAIN / "one").read_bytes() == b"written anew"


def test_nobody_elses_object_is_touched(medium: DirectoryMedium) -> None:
    with pytest.raises(Misuse):
        bench_of(medium, "one").change({f"{CHAIN}/theirs": b""})


@pytest.mark.parametrize("tamper", TAMPERS, ids=lambda one: one.name)
def test_every_way_changes_every_object(tamper: Tamper) -> None:
    dice = random.Random(2)
    mine, spare, theirs = (
        {f"{who}-{number}": dice.randbytes(200) for number in range(3)}
        for who in ("mine", "spare", "theirs")
    )
    changes = tamper.change(Hand(mine, spare, theirs, dice))
    asked = theirs if tamper.as_other else mine
    assert asked.keys() <= changes.keys() <= mine.keys() | spare.keys() | theirs.keys()
    assert all(changes[name] != asked[name] for name in asked)
