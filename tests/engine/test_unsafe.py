"""I6: settings under which scopes would be dropped are refused at start, by name."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scopekv.simulate.deployment import Deployment

pytestmark = pytest.mark.engine
# One interpreter for every case: importing vLLM takes longer than all of them.
PROGRAM = """
import sys
from vllm import LLM
from vllm.config import KVTransferConfig
from vllm.engine.arg_utils import EngineArgs
from scopekv.engines.vllm import compat, plugin
from scopekv.errors import ConfigError

model = sys.argv[1]

def config(**settings):
    return EngineArgs(model=model, max_model_len=256, **settings).create_engine_config()

def connector(name, **more):
    return KVTransferConfig(kv_connector=name, kv_role="kv_both", **more)

def show(what, vllm_config):
    try:
        compat.check_config(vllm_config)
        print(what, "ACCEPTED")
    except ConfigError as error:
        print(what, "REFUSED", error)

safe = dict(prefix_caching_hash_algo="sha256_cbor")
show("plain", config(**safe))
show("weak", config(prefix_caching_hash_algo="xxhash"))
show("example", config(**safe, kv_transfer_config=connector("ExampleConnector")))
parts = {"connectors": [{"kv_connector": "OffloadingConnector", "kv_role": "kv_both"},
                        {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}]}
multi = connector("MultiConnector", kv_connector_extra_config=parts)
show("multi", config(**safe, kv_transfer_config=multi))
try:
    LLM(model=model, max_model_len=256, enforce_eager=True, load_format="dummy",
        distributed_executor_backend="uni", block_size=32, **safe,
        kv_transfer_config=connector("ExampleConnector"))
    print("start ACCEPTED")
except Exception as error:
    print("start REFUSED", error)
assert plugin.installed_guard() is not None
"""


@pytest.fixture(scope="module")
def outcomes(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("unsafe")
    deployment = Deployment(folder)
    deployment.world.registry.close()
    env = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "LD_PRELOAD") if name in os.environ},
        "VLLM_PLUGINS": "scopekv",
        "SCOPEKV_TICKET_KEYS": str(deployment.keys_path),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(model_dir)],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=150,
    )
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if " " in line]
    assert done.returncode == 0, done.stderr[-3000:]
    return {what: outcome for what, outcome in lines if outcome[:8] in ("REFUSED ", "ACCEPTED")}


def test_i6_a_connector_that_drops_scopes_is_refused_by_name(outcomes: dict[str, str]) -> None:
    assert outcomes["plain"] == "ACCEPTED", "the positive control"
    assert "ExampleConnector" in outcomes["example"]
    assert "LMCacheConnectorV1" in outcomes["multi"]


def test_i6_the_engine_does_not_start_with_one(outcomes: dict[str, str]) -> None:
    assert outcomes["start"].startswith("REFUSED")
    assert "ExampleConnector" in outcomes["start"]


def test_a_hash_that_can_be_made_to_collide_is_refused_by_name(outcomes: dict[str, str]) -> None:
    assert "xxhash" in outcomes["weak"]
    assert "sha256_cbor" in outcomes["weak"]
