"""`scopekv audit timing`: keys, exit codes, JSON."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scopekv.cli.main import main
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel

KEY = "engine-key-of-this-test"


@pytest.fixture(scope="module")
def url(model: SimulatedModel) -> Iterator[str]:
    """A plain engine in a thread of its own, since the command runs a loop of its own."""
    ready, over = threading.Event(), asyncio.Event()
    found: list[str] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with SimulatedEngine(model, keys_path=None, api_key=KEY) as engine:
            engine.behaviour.token_seconds = 0.0001
            found.append(engine.url)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait(10)
    yield found[0]
    loop.call_soon_threadsafe(over.set)
    thread.join()
    loop.close()


def called(*arguments: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(main, ["audit", "timing", *arguments], env=env)


@pytest.mark.slow
def test_a_shared_cache_exits_with_1_and_json_says_why(url: str, tmp_path: Path) -> None:
    file = tmp_path / "victim.key"
    file.write_text(KEY + "\n", "utf-8")
    sizes = ("--samples", "30", "--attack-samples", "0", "--prompt-tokens", "136")
    result = called("--url", f"{url}/v1", "--victim-key", f"@{file}", *sizes, "--json")
    assert result.exit_code == 1, result.output
    said = json.loads(result.stdout)
    assert said["audit"] == "timing"
    assert [one["name"] for one in said["tests"]] == ["global"]
    assert {"n", "p", "auc", "auc_upper95", "control_p"} <= said["tests"][0].keys()
    assert KEY not in result.output


@pytest.mark.slow
def test_a_wrong_key_is_wrong_use(url: str) -> None:
    env = {"SCOPEKV_AUDIT_VICTIM_KEY": "sk-no-such-key"}
    result = called("--url", url, env=env)
    assert result.exit_code == 64
    assert "sk-no-such-key" not in result.output


@pytest.mark.slow
def test_an_endpoint_out_of_reach_proves_nothing() -> None:
    result = called("--url", "http://127.0.0.1:1", "--victim-key", "k", "--model", "m")
    assert result.exit_code == 2


@pytest.mark.parametrize("wrong", ["@/no/such/file", "two\nlines", ""])
def test_a_key_that_is_none_is_refused_without_being_shown(wrong: str) -> None:
    result = called("--url", "http://127.0.0.1:1", "--victim-key", wrong)
    assert result.exit_code == 64
    assert "two" not in result.output


def test_help_says_how_to_hide_keys() -> None:
    result = called("--help")
    assert "@FILE" in result.output
    assert "SCOPEKV_AUDIT_VICTIM_KEY" in result.output
