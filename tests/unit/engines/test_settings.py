"""Engine settings check themselves; the command line is stock vLLM's and holds no secret."""

import json
from pathlib import Path
from typing import Any

import pytest

from scopekv.engines.model import MODEL_NAME
from scopekv.engines.settings import EngineSettings, engine_command, engine_environment
from scopekv.errors import ConfigError


def settings(**changes: Any) -> EngineSettings:
    return EngineSettings(
        **{"model_dir": Path("/m") / MODEL_NAME, "data_dir": Path("/d"), **changes}
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"instances": 0}, "instances is 0; it must be 1 to 64"),
        ({"kv_cache_gib": 0}, "kv_cache_gib is 0"),
        ({"block_size": 48}, "block_size is 48"),
        ({"dtype": "int4"}, "dtype is 'int4'"),
        ({"ports": (1, 2)}, "ports is"),
        ({"instances": 2, "ports": (8001, 8001)}, "all different"),
        ({"ports": (70_000,)}, "1 to 65535"),
        ({"ready_seconds_max": 0}, "ready_seconds_max"),
        ({"extra_args": ("--api-key=x",)}, "random API key"),
        ({"extra_env": {"VLLM_API_KEY": "x"}}, "random API key"),
    ],
)
def test_values_that_cannot_work_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        settings(**changes)


def test_settings_keep_their_own_copy_of_the_environment_and_do_not_show_it() -> None:
    given = {"SCOPEKV_KEY": "hidden"}
    made = settings(extra_env=given)
    given["SCOPEKV_KEY"] = "changed"
    assert made.extra_env["SCOPEKV_KEY"] == "hidden"
    assert "hidden" not in repr(made)


def test_a_context_beyond_the_models_turns_yarn_on() -> None:
    short = engine_command(settings(max_model_len=8192), name="engine-0", port=1)
    assert "--hf-overrides" not in short
    command = engine_command(settings(max_model_len=10_240), name="engine-0", port=1)
    overrides = json.loads(command[command.index("--hf-overrides") + 1])
    assert overrides["max_position_embeddings"] == 16_384
    assert overrides["rope_parameters"]["rope_type"] == "yarn"
    assert overrides["rope_parameters"]["factor"] == 2.0


def test_hashes_are_made_by_what_a_gateway_can_make_too() -> None:
    command = engine_command(settings(), name="engine-0", port=1)
    assert command[command.index("--prefix-caching-hash-algo") + 1] == "sha256_cbor"
    assert "--no-enable-log-requests" in command


def test_extra_arguments_come_last_with_the_engines_name() -> None:
    made = settings(extra_args=("--kv-events-config", '{"endpoint":"ipc:///x/{instance}"}'))
    command = engine_command(made, name="engine-1", port=8001)
    assert command[-1] == '{"endpoint":"ipc:///x/engine-1"}'


@pytest.mark.parametrize(("instances", "cores", "threads"), [(1, 2, "2"), (2, 2, "1"), (3, 2, "1")])
def test_cores_are_shared_out(instances: int, cores: int, threads: str) -> None:
    environment = engine_environment(
        settings(instances=instances),
        name="engine-0",
        api_key="k",
        cores=cores,
        inherited={"PATH": "/bin", "AWS_SECRET_ACCESS_KEY": "ours"},
    )
    assert environment["OMP_NUM_THREADS"] == threads
    assert environment["PATH"] == "/bin"
    assert "AWS_SECRET_ACCESS_KEY" not in environment
