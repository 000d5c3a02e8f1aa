"""Checks of this machine: the key files, the registry, the port. Nothing is made or changed."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from scopekv.compose import INSTANCE_KEY, ROOT_KEY, WRAP_KEY, open_registry
from scopekv.errors import ScopeKVError
from scopekv.gateway.checkup.finding import Finding, error, ok, warning
from scopekv.ports import Registry

KEYS = (ROOT_KEY, WRAP_KEY, INSTANCE_KEY)


def keys_of(data_dir: Path, *, vault: bool) -> Iterator[Finding]:
    """The key files: there, readable by us alone, and holding keys."""
    for name in KEYS:
        file = data_dir / name
        if vault and name == WRAP_KEY and not file.exists():
            continue
        yield _key(file)


def _key(file: Path) -> Finding:
    try:
        found = file.stat()
        content = file.read_text("ascii")
    except FileNotFoundError:
        return warning(
            "keys",
            file.name,
            f"{file} is not there: the first start of a gateway makes a new one",
            "with several gateways, copy the keys folder of the first one here before starting",
        )
    except (OSError, ValueError):
        return error(
            "keys",
            file.name,
            f"{file} cannot be read",
            "run as the user who owns it, and check that it is a key file",
        )
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(found.st_mode)
        return error(
            "keys",
            file.name,
            f"{file} has mode {mode:04o}: others can read it",
            f"chmod 600 {file}",
        )
    lines = content.split()
    if not lines or any(len(line) != 64 or not _hex(line) for line in lines):
        return error(
            "keys",
            file.name,
            f"{file} does not hold keys (64 hexadecimal digits a line)",
            "put the copy from your safe in its place; without one, remove it: the cache is void "
            "then, nothing else",
        )
    return ok("keys", file.name, "there, and ours alone")


def _hex(text: str) -> bool:
    try:
        return bool(bytes.fromhex(text))
    except ValueError:
        return False


def registry_of(url: str) -> tuple[Finding, Registry | None]:
    """The registry opens, and answers. A missing SQLite file is made, as a gateway would."""
    shown = "sqlite" if url.startswith("sqlite") else url.split("://", 1)[0]
    try:
        registry = open_registry(url)
    except ScopeKVError as problem:
        return _no_registry(shown, problem), None
    try:
        registry.versions()
    except ScopeKVError as problem:
        registry.close()
        return _no_registry(shown, problem), None
    return ok("registry", shown, "opens, and its schema is this program's"), registry


def _no_registry(shown: str, problem: ScopeKVError) -> Finding:
    do = "check the URL, the server and the rights; while it is out of reach, requests are refused"
    return error("registry", shown, str(problem), do)


def listens(host: str, port: int, *, bind: Callable[[str, int], None] | None = None) -> Finding:
    """Whether a gateway can listen there, or one does already."""
    try:
        (bind or _bind)(host, port)
    except OSError as problem:
        return warning(
            "port",
            f"{host}:{port}",
            f"cannot listen there: {os.strerror(problem.errno or 0)}",
            "fine if that is your running gateway; else choose another port",
        )
    return ok("port", f"{host}:{port}", "free")


def _bind(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
