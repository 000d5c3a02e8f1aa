"""Where embedded engines publish their KV events: socket files in a folder that is ours alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

from scopekv.errors import ConfigError

SOCKET_PATH_MAX = 107  # bytes of a socket's name in Linux, without the closing NUL


def events_folder(data_dir: Path) -> Path:
    """Make the folder of the sockets, mode 0700. Raises `ConfigError` where that does not go."""
    folder = data_dir.absolute() / "events"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)  # it may have been there
    except OSError as error:
        raise ConfigError(f"cannot make {folder} for KV events: {error.strerror}") from error
    return folder


def events_endpoint(folder: Path, name: str) -> str:
    """The endpoint of one engine in a folder made by `events_folder`. Raises `ConfigError`."""
    path = folder / f"{name}.sock"
    if len(os.fsencode(path)) > SOCKET_PATH_MAX:
        raise ConfigError(
            f"the KV event socket {path} has a name of more than {SOCKET_PATH_MAX} bytes, which "
            "Linux does not take. Use a shorter data directory."
        )
    return f"ipc://{path}"


def events_config(endpoint: str) -> str:
    """What vLLM's `--kv-events-config` takes. No replay: a snapshot says more."""
    config = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": endpoint}
    return json.dumps(config, separators=(",", ":"))
