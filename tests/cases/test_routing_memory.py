"""R5: what routing remembers is bounded and flat, however many prompts were never seen before.

Counted in the structures themselves; the resident size is benchmarks/router.py's to measure.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scopekv.core.events import Medium
from scopekv.core.prefixes import MARKS_MAX, PrefixesInFlight, SentPrefixes, Stretch, marks
from scopekv.gateway.hashes import CHAINS_MAX
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

PROMPT_BYTES = 40_000
KEY = bytes(range(32))


def size_bytes(held: Any, seen: set[int] | None = None) -> int:
    """Of an object and all that it alone holds: containers, and attributes of our own types."""
    seen = set() if seen is None else seen
    if id(held) in seen or callable(held):
        return 0
    seen.add(id(held))
    size = sys.getsizeof(held)
    inside: list[Any] = []
    if isinstance(held, Mapping):
        inside = [part for pair in held.items() for part in pair]
    elif isinstance(held, list | tuple | set | frozenset):
        inside = list(held)
    elif type(held).__module__.startswith("scopekv."):
        names = [n for kind in type(held).__mro__ for n in getattr(kind, "__slots__", ())]
        inside = [getattr(held, n) for n in (*names, *getattr(held, "__dict__", ()))]
    return size + sum(size_bytes(part, seen) for part in inside)


@pytest.mark.parametrize("marks_max", [8192, pytest.param(65_536, marks=pytest.mark.slow)])
def test_what_was_sent_where_stops_growing_while_unique_prompts_go_on(marks_max: int) -> None:
    dice = random.Random(5)
    memory, flight = SentPrefixes(marks_max=marks_max), PrefixesInFlight()
    sizes: list[int] = []
    thousand = 1000 * marks_max // 65_536
    for number in range(9 * thousand):
        owner = Stretch(None, ("user", "acme", f"u{number % 500}"), 0)
        prompt = marks(dice.randbytes(PROMPT_BYTES), [Stretch(64, ("org", "acme"), 0), owner], KEY)
        assert len(prompt) <= MARKS_MAX
        name = f"engine-{number % 4}"
        flight.placed(name, prompt)
        memory.sent(name, prompt)
        flight.ended(name, prompt)
        assert len(flight) == 0
        if number >= 4 * thousand and number % thousand == thousand - 1:  # it was full for long
            sizes.append(size_bytes(memory))
    assert len(memory) == marks_max, "it is full, so the rest was the test"
    assert max(sizes) <= 1.01 * min(sizes)
    assert max(sizes) < 320 * marks_max


@pytest.mark.slow
async def test_r5_a_gateway_holds_no_more_after_many_unique_prompts(
    tmp_path: Path, model: SimulatedModel, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("e")
    stage = Stage(tmp_path, replace(model, max_model_len=32_768), plugins=(True, True))
    for number, engine in enumerate(stage.engines):
        engine.events_endpoint = f"ipc://{folder}/{number}"
    async with stage:
        gateway = stage.deployment.gateway
        keys = [stage.deployment.account(f"org{n}", "ann") for n in range(4)]
        router, locator = gateway.router, gateway.locator
        hashes = locator._hashes
        words = text_of("many", 8000)[:PROMPT_BYTES]
        sizes: list[int] = []
        for number in range(120):
            answer = await stage.client.chat(keys[number % 4], f"{number:06} {words}")
            assert answer.status == 200
            assert len(hashes._last) <= CHAINS_MAX
            if number % 40 == 39:  # both engines' caches were filled and evict since long
                held = (router._in_flight, locator.index, gateway.room._turns, hashes._hasher)
                sizes.append(size_bytes(held))
        assert len(router._in_flight) == 0
        assert len(gateway.room._turns) == 0
        assert max(sizes) <= 1.1 * min(sizes), sizes
        assert size_bytes(hashes._last) < CHAINS_MAX * 3 * PROMPT_BYTES
        held_blocks = sum(locator.index.size(f"engine-{n}", Medium.ENGINE) for n in (0, 1))
        assert held_blocks <= sum(engine.cache.blocks_max for engine in stage.engines)
