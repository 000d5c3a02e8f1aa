"""Processes that use an object directory: they hold it, write, fork, may not write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HOLDER = """
import sys, time
from scopekv.adapters.objects import open_store
store = open_store(sys.argv[1])
print("ready", flush=True)
time.sleep(60)
"""
WRITER = """
import sys
from scopekv.adapters.objects import open_store
from scopekv.ports import ObjectKey
store = open_store(sys.argv[1])
store.put(ObjectKey("chain", "whole"), [b"x"])
body = memoryview(bytearray(1 << 28))
store.put(ObjectKey("chain", "torn"), [body])
"""
LIMITED = """
import resource, sys
from scopekv.adapters.objects import open_store
from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey
store = open_store(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
store.put(ObjectKey("chain", "small"), [b"x" * 1_000_000])
for name in ("small", "large"):
    try:
        store.put(ObjectKey("chain", name), [b"x" * 1_000_001])
    except Unavailable as error:
        print(error)
"""
FORKING = """
import os, sys, time
from scopekv.adapters.objects import open_store
from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey
store = open_store(sys.argv[1])
if os.fork():
    time.sleep(0.5)
    os._exit(0)
try:
    store.put(ObjectKey("chain", "name"), [b"x"])
except Unavailable as error:
    print(error, flush=True)
os.close(1)
os.close(2)
time.sleep(5)
"""
# As root, modes stop nobody: become nobody after the imports.
READ_ONLY = """
import os, sys
from scopekv.adapters.objects import open_store
from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey
if os.geteuid() == 0:
    os.chown(sys.argv[1], 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
key = ObjectKey("chain", "name")
store = open_store(sys.argv[1])
store.put(key, [b"kept"])
for folder in (".tmp", "chain", ".quarantine", "."):
    os.chmod(os.path.join(sys.argv[1], folder), 0o500)
for opened in ("before", "while"):
    if opened == "while":
        store.close()
        store = open_store(sys.argv[1])
    buffer = memoryview(bytearray(4))
    assert store.get(key, buffer) == 4 and bytes(buffer) == b"kept"
    assert [found.key for found in store.objects()] == [key]
    for call in (lambda: store.put(key, [b"new"]), lambda: store.delete([key]),
                 lambda: store.quarantine(key)):
        try:
            call()
        except Unavailable as error:
            print(error)
for folder in (".", ".tmp", "chain", ".quarantine"):
    os.chmod(os.path.join(sys.argv[1], folder), 0o700)
store.put(key, [b"new"])
os.chmod(os.path.join(sys.argv[1], "chain", "name"), 0)
try:
    store.get(key, buffer)
except Unavailable as error:
    print(error)
"""


def run(code: str, root: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", code, str(root)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def start(code: str, root: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(root)], stdout=subprocess.PIPE, text=True
    )
