"""The log as JSON: one object a line, and no prompt, key, ticket or error's own words in it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from scopekv.gateway.logs import JsonFormatter, set_up_logs
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.settings_file import read_settings
from scopekv.simulate.client import CHAT
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import ENGINE_KEY, Stage

PROMPT = "the sentence that no log may hold"


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    """As a new process has it: `scopekv bench`, run before in this one, quietens our own."""
    logger, ours = logging.getLogger(), logging.getLogger("scopekv")
    before, level, own = logger.handlers[:], logger.level, ours.level
    ours.setLevel(logging.NOTSET)
    yield logger
    logger.handlers[:] = before
    logger.setLevel(level)
    ours.setLevel(own)


def test_a_line_is_one_object_whatever_the_message_holds() -> None:
    record = logging.LogRecord("scopekv.x", logging.WARNING, "", 1, 'a\n"b" %s', ("é",), None)
    line = JsonFormatter().format(record)
    assert "\n" not in line
    told = json.loads(line)
    assert (told["level"], told["logger"], told["message"]) == ("warning", "scopekv.x", 'a\n"b" é')
    assert told["time"].endswith("+00:00")


def test_an_error_is_told_by_type_and_place_alone() -> None:
    try:
        raise ValueError(PROMPT)
    except ValueError as error:
        found = (type(error), error, error.__traceback__)
        record = logging.LogRecord("scopekv.x", logging.ERROR, "", 1, "failed", (), found)
    line = JsonFormatter().format(record)
    assert PROMPT not in line
    assert json.loads(line)["error"] == "ValueError"


def test_the_setting_is_read_and_checked(tmp_path: Path) -> None:
    path = tmp_path / "scopekv.toml"
    engine = '[[instances]]\nname = "e"\nurl = "http://h:1"\n'
    path.write_text(f'log_format = "json"\n{engine}')
    assert read_settings(path).log_format == "json"
    path.write_text(f'log_format = "xml"\n{engine}')
    with pytest.raises(Exception, match="log_format"):
        read_settings(path)


async def test_what_a_gateway_logs_is_json_and_names_no_secret(
    tmp_path: Path,
    model: SimulatedModel,
    root_logger: logging.Logger,
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logs("json")
    async with Stage(tmp_path, model, plugins=(True, False)) as stage:
        key = stage.deployment.account("acme", "alice")
        assert (await stage.client.chat(key, PROMPT)).status == 200
        await stage.client.send("POST", CHAT, {"model": 7, "messages": PROMPT}, key=key)
        await stage.client.send("POST", CHAT, {}, key="sk-scopekv-" + "x" * 43)
        await stage.engine.stop()
        await stage.look()
        await stage.client.chat(key, PROMPT)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 2
    assert all(isinstance(json.loads(line), dict) for line in lines)
    secrets = [PROMPT, key, ENGINE_KEY, stage.deployment.world.instance_secret, "sk-scopekv-x"]
    assert [secret for secret in secrets if any(secret in line for line in lines)] == []
    assert GatewaySettings(()).log_format == "text"
