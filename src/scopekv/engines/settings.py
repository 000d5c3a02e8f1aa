"""What the embedded engines are started with: the settings, the command line and the environment.

Flags and variables were measured on vLLM 0.32.0 for CPUs; without `extra_env` and `extra_args` the
result is stock vLLM, with which the benchmarks compare.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from scopekv.engines.events import events_config, events_endpoint
from scopekv.engines.model import MODEL_NAME, long_context_overrides
from scopekv.engines.tiers import CREDENTIALS, Tier, transfer_config
from scopekv.errors import ConfigError

_THREADS_MAX = 8
# All that an engine inherits. Cloud credentials and root keys in our environment are not its
# business, and PYTHONHASHSEED would change its block hashes.
_INHERITED = (
    *("HOME", "LOGNAME", "PATH", "TMPDIR", "USER"),
    *("LANG", "LC_ALL", "TZ"),
    *("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONDONTWRITEBYTECODE", "PYTHONPATH"),
)


def _vllm_program() -> tuple[str, ...]:
    # The `vllm` script of the CPU wheel looks for a distribution of that name and fails.
    return (sys.executable, "-m", "vllm.entrypoints.openai.api_server")


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How many engines to run, and how. Raises ConfigError when made with values that cannot work.

    In the values of `extra_env` and in `extra_args`, `{instance}` stands for the engine's name.
    `threads` 0 shares the cores out evenly. `ports` empty takes free ones. `program` is the command
    before the flags. `tiers` need the plugin, so that their settings come with its `extra_env`.
    `events_dir`: the folder, from `engines.events.events_folder`, where each engine publishes what
    its cache holds; None: it does not.
    """

    model_dir: Path
    data_dir: Path
    served_model_name: str = MODEL_NAME
    instances: int = 1
    max_model_len: int = 8192
    dtype: str = "float32"
    block_size: int = 32
    kv_cache_gib: int = 1
    threads: int = 0
    ports: tuple[int, ...] = ()
    extra_env: Mapping[str, str] = field(default_factory=dict, repr=False)
    extra_args: tuple[str, ...] = ()
    tiers: tuple[Tier, ...] = ()
    events_dir: Path | None = None
    program: tuple[str, ...] = field(default_factory=_vllm_program)
    # A machine busy with other work took more than 180 s; an engine that ends is noticed at once.
    ready_seconds_max: float = 600.0
    stop_seconds_max: float = 15.0
    restarts_max: int = 5
    restart_window_seconds: float = 300.0
    backoff_seconds_first: float = 0.5
    backoff_seconds_max: float = 30.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra_env", MappingProxyType(dict(self.extra_env)))
        for name, low, high in (
            ("instances", 1, 64),
            ("max_model_len", 32, 1_048_576),
            ("kv_cache_gib", 1, 4096),
            ("threads", 0, 1024),
            ("restarts_max", 0, 1000),
        ):
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"engine setting {name} is {value}; it must be {low} to {high}")
        if self.block_size <= 0 or self.block_size % 32:
            raise ConfigError(
                f"engine setting block_size is {self.block_size};"
                " vLLM on a CPU takes multiples of 32"
            )
        if self.dtype not in {"float32", "bfloat16"}:
            raise ConfigError(f"engine setting dtype is {self.dtype!r}; take float32 or bfloat16")
        self._check_ports()
        self._check_times()
        if "VLLM_API_KEY" in self.extra_env or any(
            argument.startswith("--api-key") for argument in self.extra_args
        ):
            raise ConfigError("each engine gets a random API key; leave VLLM_API_KEY and --api-key")

    def _check_ports(self) -> None:
        if not self.ports:
            return
        if len(set(self.ports)) != self.instances or len(self.ports) != self.instances:
            raise ConfigError(
                f"engine setting ports is {self.ports}; name one for each of the"
                f" {self.instances} instances, all different, or none"
            )
        if not all(1 <= port <= 65_535 for port in self.ports):
            raise ConfigError(f"engine setting ports is {self.ports}; each must be 1 to 65535")

    def _check_times(self) -> None:
        for name in (
            "ready_seconds_max",
            "stop_seconds_max",
            "restart_window_seconds",
            "backoff_seconds_first",
            "backoff_seconds_max",
        ):
            if not getattr(self, name) > 0:
                raise ConfigError(f"engine setting {name} must be above 0 seconds")

    @property
    def log_dir(self) -> Path:
        """Where each engine's log lies, `<name>.log`."""
        return self.data_dir / "logs"


def engine_command(settings: EngineSettings, *, name: str, port: int) -> list[str]:
    """The command line of one engine. Holds no secret: every user can read it with `ps`."""
    command = [
        *settings.program,
        *("--model", str(settings.model_dir.absolute())),
        *("--served-model-name", settings.served_model_name),
        *("--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", settings.dtype),
        *("--block-size", str(settings.block_size)),
        *("--max-model-len", str(settings.max_model_len)),
        *("--distributed-executor-backend", "uni"),
        *("--prefix-caching-hash-algo", "sha256_cbor"),
        *("--shutdown-timeout", "5"),
        "--enforce-eager",
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
        "--no-enable-log-requests",
    ]
    overrides = long_context_overrides(settings.max_model_len)
    if overrides and settings.model_dir.name == MODEL_NAME:
        command += ["--hf-overrides", json.dumps(overrides)]
    places = {"data_dir": str(settings.data_dir.absolute()), "instance": name}
    transfer = transfer_config(settings.tiers, places)
    if transfer is not None:
        command += ["--kv-transfer-config", transfer]
    if settings.events_dir is not None:
        endpoint = events_endpoint(settings.events_dir, name)
        command += ["--kv-events-config", events_config(endpoint)]
    return command + [argument.replace("{instance}", name) for argument in settings.extra_args]


def _inherited(settings: EngineSettings) -> tuple[str, ...]:
    shared = any(not tier.url.startswith("file:") for tier in settings.tiers if tier.url)
    return (*_INHERITED, *(CREDENTIALS if shared else ()))


def engine_environment(
    settings: EngineSettings,
    *,
    name: str,
    api_key: str,
    cores: int,
    inherited: Mapping[str, str],
) -> dict[str, str]:
    """The whole environment of one engine; of `inherited` only harmless names are taken over.

    `cores`: how many this process may use; they are shared out among the instances.
    """
    threads = settings.threads or max(1, min(_THREADS_MAX, cores // settings.instances))
    return {
        **{key: inherited[key] for key in _inherited(settings) if key in inherited},
        # `-m` would put the working directory first on the path of imports.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(threads),
        # Spinning threads cost a second busy process nine tenths of the speed.
        "OMP_WAIT_POLICY": "PASSIVE",
        # Automatic binding takes other cores with a KV connector than without: fix it.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "VLLM_CPU_KVCACHE_SPACE": str(settings.kv_cache_gib),
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_CACHE_ROOT": str((settings.data_dir / "cache" / "vllm").absolute()),
        "VLLM_CONFIG_ROOT": str((settings.data_dir / "cache" / "vllm-config").absolute()),
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_API_KEY": api_key,
        "VLLM_PLUGINS": "",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        **{key: value.replace("{instance}", name) for key, value in settings.extra_env.items()},
    }
