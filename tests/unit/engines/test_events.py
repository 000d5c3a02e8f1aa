"""Where embedded engines publish their events: sockets in a folder of ours alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scopekv.adapters.kv_events import check_endpoint
from scopekv.engines.events import events_endpoint, events_folder
from scopekv.engines.settings import EngineSettings, engine_command
from scopekv.errors import ConfigError


def test_the_folder_is_ours_alone_even_if_it_was_there(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir(mode=0o755)
    folder = events_folder(tmp_path)
    assert folder.stat().st_mode & 0o777 == 0o700
    check_endpoint(events_endpoint(folder, "engine-0"))


def test_a_data_directory_too_long_for_a_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shorter data directory"):
        events_endpoint(tmp_path / ("x" * 100), "engine-0")


def test_a_data_directory_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="KV events"):
        events_folder(tmp_path / "file")


def test_i10_each_engine_publishes_on_its_own_socket_file_and_by_default_nowhere() -> None:
    silent = EngineSettings(model_dir=Path("/m"), data_dir=Path("/d"))
    assert "--kv-events-config" not in engine_command(silent, name="engine-0", port=1)
    told = EngineSettings(
        model_dir=Path("/m"), data_dir=Path("/d"), instances=2, events_dir=Path("/d/events")
    )
    for name in ("engine-0", "engine-1"):
        command = engine_command(told, name=name, port=1)
        config = json.loads(command[command.index("--kv-events-config") + 1])
        assert config == {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"ipc:///d/events/{name}.sock",
        }
