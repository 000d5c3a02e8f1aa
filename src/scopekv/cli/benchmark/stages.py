"""The servers that benchmarks measure, in a throw-away folder: stock vLLM, and ScopeKV before it.

Nothing is left: engines are stopped, and the folder with its registry and keys is removed.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from scopekv.cli.up import plugin_environment
from scopekv.compose import World, open_world
from scopekv.core.article import Warming
from scopekv.engines.embedded import EmbeddedEngines, EngineInstance
from scopekv.engines.settings import EngineSettings
from scopekv.errors import ConfigError
from scopekv.gateway.administration import Administration
from scopekv.gateway.administration.gate import LOCAL_OPERATOR
from scopekv.gateway.app import Gateway
from scopekv.gateway.instances import InstanceAddress, Isolation
from scopekv.gateway.settings import GatewaySettings

BLOCK_SIZE = 32
_GIB = 1 << 30
_DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
_POSITIONS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineChoice:
    """What a benchmark's engines have in common. `threads` 0: all cores."""

    model_dir: Path
    cache_dir: Path  # vLLM's own caches, kept between runs
    dtype: str = "float32"
    threads: int = 0
    prompt_tokens_max: int = _POSITIONS - 64

    def settings(
        self, folder: Path, kv_tokens: int, extra_env: Mapping[str, str] | None = None
    ) -> EngineSettings:
        """Settings of one engine whose cache holds `kv_tokens` without evicting any."""
        blocks_of_positions = -(-(self.prompt_tokens_max + 64) // _POSITIONS)
        gib = -(-kv_tokens * self.kv_token_bytes() // _GIB)
        return EngineSettings(
            model_dir=self.model_dir,
            data_dir=folder,
            dtype=self.dtype,
            threads=self.threads,
            block_size=BLOCK_SIZE,
            kv_cache_gib=max(1, gib),
            max_model_len=blocks_of_positions * _POSITIONS,
            extra_env={"VLLM_CACHE_ROOT": str(self.cache_dir.absolute()), **(extra_env or {})},
        )

    def kv_token_bytes(self) -> int:
        """KV cache bytes of one token: layers x (keys and values) x heads x size."""
        config = json.loads((self.model_dir / "config.json").read_text("utf-8"))
        heads = config["num_key_value_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        values = config["num_hidden_layers"] * 2 * heads * head_dim
        return int(values) * _DTYPE_BYTES[self.dtype]


@asynccontextmanager
async def engine_running(settings: EngineSettings) -> AsyncIterator[EngineInstance]:
    """One engine, ready; stopped at the end. Raises `ConfigError` with its log's last lines."""
    engines = EmbeddedEngines(settings)
    try:
        await engines.start()
        await engines.wait_ready()
        yield engines.instances[0]
    finally:
        await engines.stop()


@asynccontextmanager
async def stock_engine(choice: EngineChoice, kv_tokens: int) -> AsyncIterator[EngineInstance]:
    """vLLM as it comes: no plugin is loaded (VLLM_PLUGINS is empty)."""
    with tempfile.TemporaryDirectory(prefix="scopekv-bench-") as folder:
        settings = choice.settings(Path(folder), kv_tokens)
        async with engine_running(settings) as engine:
            yield engine


@dataclass(frozen=True, slots=True, repr=False)
class ScopedStage:
    """A gateway before one engine with the plugin. `warming` happened before any user asked."""

    gateway_url: str
    engine: EngineInstance
    keys: tuple[str, ...]  # one API key for each user
    gateway: Gateway


@asynccontextmanager
async def scoped_stage(
    choice: EngineChoice, kv_tokens: int, *, document: str, users: int
) -> AsyncIterator[ScopedStage]:
    """An engine with the plugin, a gateway, isolated users, and one published, warm document.

    Each user is the only one of its organisation. Registry and keys are made for this run.
    """
    with tempfile.TemporaryDirectory(prefix="scopekv-bench-") as name:
        folder = Path(name)
        world = open_world(folder, f"sqlite:///{folder / 'registry.db'}")
        keys = prepare(world, document, users)
        group = GatewaySettings((), port=0)
        environment = plugin_environment(world, group.instance_group, "")
        async with AsyncExitStack() as stack:
            settings = choice.settings(folder, kv_tokens, environment)
            engine = await stack.enter_async_context(engine_running(settings))
            address = InstanceAddress(engine.name, engine.url, engine.api_key)
            gateway = Gateway(GatewaySettings((address,), port=0), world)
            stack.push_async_callback(gateway.stop)
            await gateway.start()
            await gateway.warmer.settle()
            _check_scoped(gateway)
            url = f"http://127.0.0.1:{gateway.port}"
            yield ScopedStage(url, engine, keys, gateway)


def prepare(world: World, document: str, users: int) -> tuple[str, ...]:
    """Publish the document for everybody; make users and return their keys."""
    service = Administration(world.registry)
    service.documents.publish(
        LOCAL_OPERATOR, name="benchmark-manual", audience="public", text=document, org=None
    )
    keys = []
    for number in range(users):
        org, user = f"tenant-{number}", f"user-{number}"
        service.orgs.create(LOCAL_OPERATOR, org)
        service.accounts.create(LOCAL_OPERATOR, org, user, service=False)
        made = service.keys.create(LOCAL_OPERATOR, org, user, label="", expires_at=None)
        keys.append(made.secret)
    return tuple(keys)


def warming(document_tokens: int, engine_tokens: float) -> Warming:
    """What publishing prefilled: the form that users send, and `engine_tokens` in all forms."""
    return Warming(document_tokens, round(engine_tokens))


def _check_scoped(gateway: Gateway) -> None:
    instance = gateway.fleet.instances[0]
    if instance.isolation is not Isolation.SCOPED or instance.texts is None:
        raise ConfigError(
            f"the engine runs, but the gateway sends it no tickets: {instance.reason}. Reinstall "
            "ScopeKV beside vLLM (make setup), so that vLLM finds the plugin."
        )
