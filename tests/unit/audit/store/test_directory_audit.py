"""A directory read without any key: what lies in it wrongly is found, a clean one holds."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from scopekv.audit.results import AuditResult, Verdict
from scopekv.audit.store import Secret, StoreSettings, StoreTarget, audit_store
from scopekv.core.sealing import make_header
from scopekv.errors import ConfigError

SIZE = 4096
CHAIN = "r86400-" + "ab" * 12
SECRET = bytes(range(7, 39))


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    """As the directory tier of one instance leaves it, nested below `tiers`."""
    dice = random.Random(8)
    root = tmp_path / "tiers" / "engine-0"
    root.mkdir(mode=0o700, parents=True)
    for folder in (CHAIN, f"{CHAIN}-{'cd' * 12}", ".tmp", ".quarantine"):
        (root / folder).mkdir(mode=0o700)
    for number in range(6):
        folder = CHAIN if number % 2 else f"{CHAIN}-{'cd' * 12}"
        put(root / folder / dice.randbytes(20).hex(), sealed(dice))
    put(root / ".lock", b"1234\n")
    return root


def put(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o600)


def sealed(dice: random.Random, size: int = SIZE) -> bytes:
    return make_header(dice.randbytes(12), size) + dice.randbytes(size + 16)


async def audited(tier: Path) -> AuditResult:
    target = StoreTarget(
        (f"directory={tier.parent}",),
        names=("globex-industries",),
        secrets=(Secret("the root key", SECRET),),
    )
    return await audit_store(target, StoreSettings(), lambda *_: None)


async def test_a_clean_one_holds_and_nothing_in_it_is_changed(tier: Path) -> None:
    before = times(tier)
    result = await audited(tier)
    assert {check.name for check in result.checks if check.verdict is Verdict.BROKEN} == set()
    assert result.exit_code == 0
    assert times(tier) == before
    assert result.figures["objects"] == 6
    assert result.figures["bytes"] == 6 * (SIZE + 48)
    untested = {check.name for check in result.checks if check.verdict is Verdict.NOT_TESTED}
    assert {"store.scopes", "store.logs", "store.metrics", "store.events"} <= untested


def times(tier: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in tier.rglob("*")}


def plain_numbers(tier: Path) -> None:
    put(tier / CHAIN / ("0" * 40), b"0.125 -0.25 1.75 " * 300)


def a_key_in_hex(tier: Path) -> None:
    body = random.Random(1).randbytes(2000)
    put(tier / CHAIN / ("1" * 40), body + SECRET.hex().encode() + body)


def a_name(tier: Path) -> None:
    put(tier / "globex-industries.bin", sealed(random.Random(2)))


def a_copy(tier: Path) -> None:
    one = next((tier / CHAIN).iterdir())
    put(tier / f"{CHAIN}-{'cd' * 12}" / one.name, one.read_bytes())


def open_to_all(tier: Path) -> None:
    next((tier / CHAIN).iterdir()).chmod(0o644)


def an_open_folder(tier: Path) -> None:
    (tier / CHAIN).chmod(0o755)


def a_link(tier: Path) -> None:
    (tier / CHAIN / ("2" * 40)).symlink_to("/nowhere")


def long_over(tier: Path) -> None:
    old = time.time() - 2 * 86_400
    os.utime(next((tier / CHAIN).iterdir()), (old, old))


def unfinished(tier: Path) -> None:
    put(tier / ".tmp" / "77-0", bytes(100))
    old = time.time() - 7200
    os.utime(tier / ".tmp" / "77-0", (old, old))


def full_quarantine(tier: Path) -> None:
    dice = random.Random(3)
    for number in range(200):
        put(tier / ".quarantine" / f"{CHAIN}.{number:040d}", sealed(dice))


def sizes_of_content(tier: Path) -> None:
    for number in range(6):
        put(tier / CHAIN / f"{number:040d}", sealed(random.Random(number), SIZE + 64 * number))


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (plain_numbers, "sealed"),
        (a_key_in_hex, "plaintext"),
        (a_name, "names"),
        (a_copy, "sealed"),
        (open_to_all, "modes"),
        (an_open_folder, "modes"),
        (a_link, "modes"),
        (long_over, "leftovers"),
        (unfinished, "leftovers"),
        (full_quarantine, "leftovers"),
        (sizes_of_content, "sizes"),
    ],
    ids=lambda one: getattr(one, "__name__", one),
)
async def test_what_lies_there_wrongly_is_found(
    plant: Callable[[Path], None], name: str, tier: Path
) -> None:
    plant(tier)
    result = await audited(tier)
    broken = {check.name for check in result.checks if check.verdict is Verdict.BROKEN}
    assert f"store.{name}" in broken
    assert result.exit_code == 1
    assert "globex-industries" not in " ".join(check.summary for check in result.checks)


async def test_an_empty_one_is_blind(tmp_path: Path) -> None:
    result = await audit_store(
        StoreTarget((f"directory={tmp_path}",)), StoreSettings(), lambda *_: None
    )
    assert result.exit_code == 2


async def test_what_cannot_be_opened_is_said_without_its_password() -> None:
    for location in ("directory=/no/such/folder", "ftp://user:hush@host/", "nonsense"):
        with pytest.raises(ConfigError) as caught:
            await audit_store(StoreTarget((location,)), StoreSettings(), lambda *_: None)
        assert "hush" not in str(caught.value)
    with pytest.raises(ConfigError):
        StoreTarget(())
