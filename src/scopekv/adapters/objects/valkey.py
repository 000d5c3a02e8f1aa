"""Objects in Valkey, one server or a cluster, as strings that expire by themselves.

    scopekv:<chain>:<name>     the object; lives as long as the chain's retention

Each call is one round trip with a deadline over all of it, redirections and reconnecting included;
the client reconnects by itself. A corrupt object is dropped, nothing of it is kept.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import unquote

from glide_sync import (
    AdvancedGlideClientConfiguration,
    AdvancedGlideClusterClientConfiguration,
    BackoffStrategy,
    Batch,
    ByAddressRoute,
    ClusterBatch,
    ExpirySet,
    ExpiryType,
    GlideClient,
    GlideClientConfiguration,
    GlideClusterClient,
    GlideClusterClientConfiguration,
    GlideError,
    Logger,
    LogLevel,
    NodeAddress,
    ServerCredentials,
)
from glide_sync import TimeoutError as GlideTimeoutError

from scopekv.adapters.objects import urls
from scopekv.adapters.objects.naming import checked_chain, key_of, path_of
from scopekv.core.chains import retention_of
from scopekv.errors import ConfigError, Unavailable
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.ports.objects import Bytes, Wanted

PREFIX = "scopekv:"
OTHER_RETENTION_SECONDS = 86_400  # for a folder whose name states none: nothing stays for ever
_BATCH_KEYS = 500
_GONE = -2  # what PEXPIRETIME says of a key that is not there
_PORT = 6379
_SLOTS = 16_384
_SAID = (  # what a server says first in an error, and what it means here
    ("OOM", "it is full"),
    ("READONLY", "it is read-only"),
    ("NOAUTH", "it refuses the credentials"),
    ("WRONGPASS", "it refuses the credentials"),
    ("NOPERM", "it refuses this user"),
    ("CLUSTERDOWN", "its cluster is incomplete"),
    ("MISCONF", "it cannot save"),
)


class ValkeyStore:
    """The object store of several machines, in memory. See `open_store` for the URL."""

    medium = "valkey"

    def __init__(self, url: str, patience: urls.Patience) -> None:
        self._cluster, configuration = _configuration(url, patience)
        self._place = ", ".join(f"{node.host}:{node.port}" for node in configuration.addresses)
        self._host = configuration.addresses[0].host
        self._call_seconds = patience.call_seconds
        # Its own lines would say no more than our `Unavailable`, once for every call.
        Logger.set_logger_config(LogLevel.OFF)
        with self._guard():
            self._client: GlideClient | GlideClusterClient
            if isinstance(configuration, GlideClusterClientConfiguration):
                self._client = GlideClusterClient.create(configuration)
            else:
                self._client = GlideClient.create(configuration)

    def put(self, key: ObjectKey, parts: Sequence[Bytes]) -> None:
        name = _name(key)
        seconds = retention_of(key.chain) or OTHER_RETENTION_SECONDS
        with self._guard():
            # One copy, a tenth of what sending costs: the client sends a value in one piece.
            self._client.set(name, b"".join(parts), expiry=ExpirySet(ExpiryType.SEC, seconds))

    def get(self, key: ObjectKey, into: memoryview) -> int | None:
        name = _name(key)
        with self._guard():
            value = self._client.get(name)
        if value is None:
            return None
        view = into.cast("B")
        if len(value) <= len(view):
            view[: len(value)] = value
        return len(value)

    def present(self, keys: Sequence[ObjectKey]) -> frozenset[ObjectKey]:
        names = [_name(key) for key in keys]
        if not names:
            return frozenset()
        batch = self._batch()
        for name in names:
            batch.exists([name])
        counts = self._run(batch)
        return frozenset(key for key, count in zip(keys, counts, strict=True) if count)

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        """The server frees the memory in the background; the names are gone at once."""
        names = [_name(key) for key in keys]
        count = 0
        for start in range(0, len(names), _BATCH_KEYS):
            with self._guard():
                count += self._client.unlink([*names[start : start + _BATCH_KEYS]])
        return count

    def chains(self) -> Iterator[str]:
        """Walks the whole keyspace: about 1 ms for a thousand keys."""
        seen = set()
        for page in self._pages(f"{PREFIX}*"):
            for key in page:
                if key.chain not in seen:
                    seen.add(key.chain)
                    yield key.chain

    def objects(self, chain: str | Wanted | None = None) -> Iterator[ObjectStat]:
        """Walks the whole keyspace even for one folder; ask once for all that are wanted."""
        one = checked_chain(chain) if isinstance(chain, str) else None
        pattern = f"{PREFIX}{one}:*" if one else f"{PREFIX}*"
        seen: set[ObjectKey] = set()  # a walk may show a key twice
        for page in self._pages(pattern):
            fresh = [
                key
                for key in dict.fromkeys(page)
                if key not in seen and (not callable(chain) or chain(key.chain))
            ]
            seen.update(fresh)
            yield from self._stats(fresh)

    def quarantine(self, key: ObjectKey) -> None:
        """Drop it: memory is too dear for what nobody can open."""
        self.delete([key])

    def quarantined(self) -> Iterator[ObjectStat]:
        """Nothing is kept."""
        return iter(())

    def close(self) -> None:
        with contextlib.suppress(GlideError):
            self._client.close()

    @contextlib.contextmanager
    def _guard(self) -> Iterator[None]:
        """Whatever goes wrong is `Unavailable`, in our words: a server's may hold names."""
        try:
            yield
        except GlideTimeoutError:
            raise Unavailable(
                f"Valkey at {self._place} gave no answer within {self._call_seconds} s"
            ) from None
        except (GlideError, OSError) as error:
            text = str(error)
            meaning = next((what for code, what in _SAID if code in text), None)
            raise Unavailable(
                f"Valkey at {self._place}: {meaning or f'out of reach ({type(error).__name__})'}"
            ) from None

    def _batch(self) -> Batch | ClusterBatch:
        return ClusterBatch(is_atomic=False) if self._cluster else Batch(is_atomic=False)

    def _run(self, batch: Batch | ClusterBatch) -> list[int]:
        """Execute commands that answer with a number, in one round trip to each server."""
        with self._guard():
            answers: object
            if isinstance(self._client, GlideClusterClient):
                assert isinstance(batch, ClusterBatch)  # noqa: S101  for the type checker
                answers = self._client.exec(batch, raise_on_error=True)
            else:
                assert isinstance(batch, Batch)  # noqa: S101
                answers = self._client.exec(batch, raise_on_error=True)
        if not isinstance(answers, list):
            raise Unavailable(f"Valkey at {self._place} gave no answer to a batch")
        return [int(answer) for answer in answers]

    def _pages(self, pattern: str) -> Iterator[list[ObjectKey]]:
        """SCAN, on every primary of a cluster in turn.

        Not by the client's own walk over a cluster: that one has no deadline (2.6: it waits for
        ever for a server that is gone). A cluster that moves slots meanwhile could hide keys from
        us, so that raises `Unavailable`, too.
        """
        if not self._cluster:
            yield from self._walk(pattern, None)
            return
        primaries = self._primaries()
        for host, port in sorted(set(primaries.values())):
            yield from self._walk(pattern, ByAddressRoute(host, port))
        if self._primaries() != primaries:
            raise Unavailable(f"Valkey at {self._place}: its cluster changed during a listing")

    def _walk(self, pattern: str, route: ByAddressRoute | None) -> Iterator[list[ObjectKey]]:
        cursor = b"0"
        while True:
            page = self._ask(["SCAN", cursor, "MATCH", pattern, "COUNT", str(_BATCH_KEYS)], route)
            cursor, names = page
            found = (key_of(name[len(PREFIX) :].decode("ascii", "replace"), ":") for name in names)
            yield [key for key in found if key is not None]
            if cursor == b"0":
                return

    def _ask(self, command: list[str | bytes], route: ByAddressRoute | None = None) -> Any:
        with self._guard():
            if isinstance(self._client, GlideClusterClient):
                return self._client.custom_command([*command], route)
            return self._client.custom_command([*command])

    def _primaries(self) -> dict[tuple[int, int], tuple[str, int]]:
        """Who serves each range of slots; `Unavailable` unless together they serve all."""
        ranges = {}
        for first, last, primary, *_ in self._ask(["CLUSTER", "SLOTS"]):
            host = primary[0].decode() if primary[0] else self._host
            ranges[int(first), int(last)] = (host, int(primary[1]))
        if sum(last - first + 1 for first, last in ranges) != _SLOTS:
            raise Unavailable(f"Valkey at {self._place}: its cluster is incomplete")
        return ranges

    def _stats(self, keys: Sequence[ObjectKey]) -> Iterator[ObjectStat]:
        if not keys:
            return
        batch = self._batch()
        for key in keys:
            batch.strlen(_name(key))
            batch.pexpiretime(_name(key))
        answers = self._run(batch)
        for key, size_bytes, ends_ms in zip(keys, answers[::2], answers[1::2], strict=True):
            if ends_ms == _GONE:
                continue
            kept = retention_of(key.chain) or OTHER_RETENTION_SECONDS
            # Without an end (PERSIST, a restore) its time is unknown: then it is over.
            yield ObjectStat(key, size_bytes, max(0.0, ends_ms / 1000 - kept))


def _name(key: ObjectKey) -> str:
    return PREFIX + path_of(key, ":")


def _configuration(
    url: str, patience: urls.Patience
) -> tuple[bool, GlideClientConfiguration | GlideClusterClientConfiguration]:
    parts = urls.split(url)
    values = urls.options(parts, ("cluster", "tls"))
    cluster, database = urls.flag(values, "cluster"), parts.path.strip("/") or "0"
    if not parts.hostname or not database.isdecimal() or (cluster and int(database)):
        raise ConfigError(
            "a Valkey URL is valkey://[user:password@]host[:port]/[database]"
            "[?cluster=true][&tls=true]; a cluster has database 0 only"
        )
    credentials = None
    if parts.password:
        credentials = ServerCredentials(
            unquote(parts.password), unquote(parts.username or "") or None
        )
    connect_ms = max(1, round(patience.connect_seconds * 1000))
    common: dict[str, Any] = {
        "addresses": [NodeAddress(parts.hostname, parts.port or _PORT)],
        "use_tls": urls.flag(values, "tls"),
        "credentials": credentials,
        "request_timeout": max(1, round(patience.call_seconds * 1000)),
        "reconnect_strategy": BackoffStrategy(num_of_retries=3, factor=50, exponent_base=2),
        "lazy_connect": True,  # a store that is down now is no reason not to start
    }
    if cluster:
        return True, GlideClusterClientConfiguration(
            **common,
            advanced_config=AdvancedGlideClusterClientConfiguration(connection_timeout=connect_ms),
        )
    return False, GlideClientConfiguration(
        **common,
        database_id=int(database),
        advanced_config=AdvancedGlideClientConfiguration(connection_timeout=connect_ms),
    )
