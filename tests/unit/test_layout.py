"""Every line has its place: the layers cover every module, and the core is pure."""

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "scopekv"
# Standard modules that read a clock, dice, files, the network or other threads: not in the core.
IMPURE = frozenset(
    (
        *("asyncio", "concurrent", "multiprocessing", "signal", "subprocess", "threading"),
        *("http", "select", "socket", "ssl", "urllib"),
        *("ctypes", "io", "logging", "os", "pathlib", "shutil", "sqlite3", "tempfile"),
        *("random", "secrets", "time", "uuid"),
    )
)


def placed_names() -> set[str]:
    """The names in the layers contract of pyproject.toml."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    return {name.strip().strip("()") for layer in layers for name in layer.split(":")}


def unplaced(package: Path, placed: set[str]) -> set[str]:
    """Modules and packages directly below `package` that no layer names."""
    files = {path.stem for path in package.glob("*.py")} - {"__init__"}
    folders = {path.name for path in package.iterdir() if any(path.rglob("*.py"))}
    return (files | folders) - placed


def imported_modules(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""


def test_every_module_has_its_layer() -> None:
    assert unplaced(PACKAGE, placed_names()) == set()


@pytest.mark.parametrize("stray", ["helpers.py", "common/thing.py"])
def test_an_unplaced_module_is_found(tmp_path: Path, stray: str) -> None:
    (tmp_path / stray).parent.mkdir(exist_ok=True)
    (tmp_path / stray).write_text("")
    (tmp_path / "core.py").write_text("")
    assert unplaced(tmp_path, placed_names()) == {stray.split("/")[0].removesuffix(".py")}


def test_the_core_imports_pure_standard_modules_only() -> None:
    strays = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted((PACKAGE / "core").rglob("*.py"))
        for name in imported_modules(path)
        if not name.startswith(("scopekv.core", "scopekv.errors"))
        and (name.split(".")[0] not in sys.stdlib_module_names or name.split(".")[0] in IMPURE)
    ]
    assert strays == []


def test_only_the_vllm_package_imports_vllm_and_torch() -> None:
    foreign = {"vllm", "torch", "transformers"}
    strays = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if (PACKAGE / "engines" / "vllm") not in path.parents
        if any(word in path.read_text() for word in foreign)  # or it need not be parsed
        for name in imported_modules(path)
        if name.split(".")[0] in foreign
    ]
    assert strays == []
