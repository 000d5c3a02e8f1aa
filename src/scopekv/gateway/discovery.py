"""Which instances there are: listed, behind a DNS name, or the endpoints of a Kubernetes service.

    [[instances]]                          one of
    url = "http://gpu-0:8000"                  itself
    dns = "http://vllm.internal:8000"          one per address of the name (A and AAAA)
    kubernetes = "inference/vllm:8000"         one per ready address of the service's Endpoints

Names are resolved anew every few seconds; what cannot be resolved now stays as it was.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import socket
import ssl
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from scopekv.errors import ConfigError, Unavailable
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.http.client import ClientPool
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.rounds import Rounds

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
ANSWER_BYTES_MAX = 16 << 20
ASK_SECONDS = 5.0
_SERVICE = re.compile(r"([a-z0-9-]{1,63})/([a-z0-9-]{1,63}):([0-9]{1,5}|[a-z0-9-]{1,15})")
log = logging.getLogger("scopekv.discovery")


@dataclass(frozen=True, slots=True, repr=False)
class Source:
    """One `[[instances]]` that stands for any number: `dns` or `kubernetes` is set."""

    name: str
    dns: str = ""
    kubernetes: str = ""
    api_key: str = ""

    def __post_init__(self) -> None:
        if bool(self.dns) is bool(self.kubernetes):
            raise ConfigError(f"instances {self.name}: set one of url, dns, kubernetes")
        if self.kubernetes and not _SERVICE.fullmatch(self.kubernetes):
            raise ConfigError(
                f"instances {self.name}: kubernetes is {self.kubernetes!r}; it takes "
                "NAMESPACE/SERVICE:PORT, the port by number or by name"
            )
        if self.dns and not self.dns.startswith("http://"):
            raise ConfigError(
                f"instances {self.name}: dns is {self.dns!r}; it takes http://NAME:PORT (a "
                "certificate is for a name, and addresses are what is called)"
            )


@dataclass(frozen=True, slots=True, repr=False)
class Cluster:
    """How to ask the Kubernetes API: as a pod does, from its service account."""

    url: str
    account: Path = ACCOUNT

    @classmethod
    def of_this_pod(cls, environment: Mapping[str, str] = os.environ) -> Cluster:
        """Raises `ConfigError` outside of a cluster."""
        host = environment.get("KUBERNETES_SERVICE_HOST", "")
        if not host:
            raise ConfigError("kubernetes instances need a pod: no KUBERNETES_SERVICE_HOST here")
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{environment.get('KUBERNETES_SERVICE_PORT', '443')}")

    async def endpoints(self, namespace: str, service: str) -> Any:
        """The service's Endpoints. Raises `Unavailable`. The token is read anew: it rotates."""
        try:
            token = (self.account / "token").read_text("ascii").strip()
            tls = None
            if self.url.startswith("https://"):
                tls = ssl.create_default_context(cafile=str(self.account / "ca.crt"))
        except (OSError, ssl.SSLError, UnicodeDecodeError) as error:
            raise Unavailable(f"the service account cannot be read: {error}") from error
        pool = ClientPool(self.url, tls=tls)
        path = f"/api/v1/namespaces/{namespace}/endpoints/{service}"
        headers = [
            (b"authorization", b"Bearer " + token.encode()),
            (b"accept", b"application/json"),
        ]
        try:
            async with await pool.request(
                "GET", path, headers, b"", timeout_seconds=ASK_SECONDS
            ) as answer:
                content = await answer.read(ANSWER_BYTES_MAX)
                if answer.status != 200:
                    raise Unavailable(f"the Kubernetes API answered {path} with {answer.status}")
                return msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise Unavailable("the Kubernetes API did not answer in JSON") from error
        finally:
            await pool.close()


async def resolve(
    source: Source, cluster: Callable[[], Cluster] = Cluster.of_this_pod
) -> list[InstanceAddress]:
    """The instances of a source now, in a fixed order. Raises `Unavailable`, `ConfigError`."""
    if source.dns:
        found = await _addresses(source.dns)
    else:
        namespace, _, rest = source.kubernetes.partition("/")
        service, _, port = rest.partition(":")
        found = ready(await cluster().endpoints(namespace, service), port)
    made = []
    for host, number in sorted(set(found)):
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{number}"
        made.append(InstanceAddress(f"{source.name}-{shown}:{number}", url, source.api_key))
    return made


async def _addresses(url: str) -> list[tuple[str, int]]:
    try:
        parts = urllib.parse.urlsplit(url)
        host, port = parts.hostname or "", parts.port or 80
        rows = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError, UnicodeError) as error:
        raise Unavailable(f"{url} does not resolve: {type(error).__name__}") from error
    return [(str(row[4][0]), port) for row in rows]


def ready(endpoints: Any, port: str) -> list[tuple[str, int]]:
    """The ready addresses of an Endpoints object, at this port. Raises `Unavailable`.

    Addresses only: a host name in their place would be resolved by whoever answers for it.
    """
    found = []
    try:
        for subset in endpoints.get("subsets") or []:
            numbers = [
                int(one["port"])
                for one in subset.get("ports") or []
                if port in (str(one["port"]), one.get("name"))
            ]
            for address in subset.get("addresses") or []:
                host = str(ipaddress.ip_address(address["ip"]))
                found += [(host, number) for number in numbers]
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise Unavailable("the Kubernetes API's answer is not an Endpoints object") from error
    return found


@dataclass(slots=True)
class Discovery:
    """Keeps a fleet equal to a list and what its sources resolve to. Use: `start`, then `stop`."""

    fleet: Fleet
    listed: Sequence[InstanceAddress]
    sources: Sequence[Source]
    every_seconds: float
    cluster: Callable[[], Cluster] = Cluster.of_this_pod
    _known: dict[str, list[InstanceAddress]] = field(default_factory=dict)
    _rounds: Rounds = field(init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._rounds = Rounds(
            self._again, self.every_seconds, log, waits="what became of instances waits"
        )

    async def start(self) -> None:
        """Resolve once, then again and again where there is what to resolve."""
        await self.settle()
        self._rounds.start()

    async def stop(self) -> None:
        await self._rounds.stop()

    async def replace(self, listed: Sequence[InstanceAddress], sources: Sequence[Source]) -> None:
        """Take over other settings, and bring the fleet in line. Raises `ConfigError`."""
        self.listed, self.sources = listed, sources
        self._known = {s.name: self._known[s.name] for s in sources if s.name in self._known}
        await self.settle()

    async def settle(self) -> None:
        """Resolve every source and bring the fleet in line; a source out of reach stays as it was.

        An empty answer counts: a service can have no ready address.
        """
        async with self._turn:
            for source in self.sources:
                try:
                    self._known[source.name] = await resolve(source, self.cluster)
                except Unavailable as error:
                    log.warning("instances %s: %s", source.name, error)
            found = [*self.listed, *(i for rows in self._known.values() for i in rows)]
            if found != [instance.address for instance in self.fleet.instances]:
                await self.fleet.reconcile(found)

    async def _again(self) -> None:
        if self.sources:
            await self.settle()
