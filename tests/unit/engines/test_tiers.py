"""Tiers as they are written on a command line, and what vLLM is told of them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from scopekv.adapters.objects import open_store
from scopekv.engines.tiers import (
    DEFAULT_TIERS,
    Tier,
    parse_tiers,
    transfer_config,
    with_credentials,
)
from scopekv.errors import ConfigError

GIB = 1 << 30


def outer(*texts: str, **places: str) -> list[dict[str, Any]]:
    """The tiers beyond host memory, as an engine gets them."""
    told = transfer_config(parse_tiers(["host=1GiB", *texts]), {"instance": "engine-0", **places})
    assert told is not None
    found: list[dict[str, Any]] = json.loads(told)["kv_connector_extra_config"]["secondary_tiers"]
    return found


def test_host_memory_comes_first_and_sizes_have_units() -> None:
    assert parse_tiers(["valkey://h:1,1.5GiB", "host=512MiB"]) == (
        Tier("", 512 << 20),
        Tier("valkey://h:1", GIB * 3 // 2),
    )
    assert parse_tiers(["none"]) == ()
    assert transfer_config((), {}) is None
    assert [tier.size_bytes for tier in parse_tiers(DEFAULT_TIERS)] == [GIB, 10 * GIB]


@pytest.mark.parametrize(
    "texts",
    [
        ["directory=1GiB"],
        ["host=1GiB", "host=1GiB"],
        ["host=1GiB", "none"],
        ["host=1GiB", "valkey://a,1GiB", "valkey://b,1GiB"],
        ["host=1GB"],
        ["host=1"],
        ["host=0MiB"],
        ["host=-1GiB"],
        ["host=1GiB", "directory=/x"],
        ["host=1GiB", "redis://h,1GiB"],
        ["host=1GiB", "s3://bucket"],
        ["disk=1GiB", "host=1GiB"],
    ],
)
def test_what_is_no_set_of_tiers_is_refused(texts: list[str]) -> None:
    with pytest.raises(ConfigError):
        parse_tiers(texts)


@pytest.mark.parametrize(
    "text",
    [
        "valkey://user:hunter2@h:1,1GiB",
        "valkey://:hun/ter2@h:1,1GiB",
        "valkey://:hunter2@h:1,1GB",
        "valkey://:hun/ter2@h:1,1GB",
        "s3://bucket?access_key_id=a&secret_access_key=hunter2,1GiB",
        "s3://bucket?secret%5Faccess%5Fkey=hunter2,1GiB",
        "s3://bucket?session_token=hunter2,1GiB",
        "s3://bucket?secret_access_key=hunter2,1GB",
        "redis://:hunter2@h:1,1GiB",
    ],
)
def test_a_password_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_tiers(["host=1GiB", text])
    assert "ter2" not in str(refusal.value)


@pytest.mark.parametrize("name", ["plain", "a b", "50%20", "what?", "#1", "ä"])
def test_a_folder_of_any_name_is_the_one_that_was_meant(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    by_path = outer(f"directory={folder},1GiB")
    by_place = outer("directory=1GiB", data_dir=str(folder))
    (folder / "tiers").mkdir()
    for told, place in ((by_path, folder), (by_place, folder / "tiers")):
        assert told[0]["state_dir"] == str(place / "engine-0-state")
        store = open_store(told[0]["url"])
        store.close()
        assert "engine-0" in os.listdir(place)
    assert os.listdir(tmp_path) == [name]


def test_credentials_come_from_the_environment_and_go_to_valkey_alone() -> None:
    env = {"SCOPEKV_VALKEY_USERNAME": "us/er", "SCOPEKV_VALKEY_PASSWORD": "p@ss"}
    assert with_credentials("valkey://h:1/0?tls=true", env) == (
        "valkey://us%2Fer:p%40ss@h:1/0?tls=true"
    )
    assert with_credentials("valkey://h:1", {}) == "valkey://h:1"
    assert with_credentials("valkey://a:b@h:1", env) == "valkey://a:b@h:1"
    assert with_credentials("s3://bucket", env) == "s3://bucket"
