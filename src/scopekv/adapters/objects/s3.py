"""Objects in a bucket of S3, or of what speaks it (SeaweedFS, MinIO, Ceph).

    <prefix>/<chain>/<name>

The bucket has to exist. Each request has a deadline over all of it, body included; at most one
retry, and none after a deadline. A corrupt object is deleted, nothing of it is kept.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from scopekv.adapters.objects import urls
from scopekv.adapters.objects.naming import checked_chain, is_chain, key_of, path_of
from scopekv.errors import ConfigError, Unavailable
from scopekv.ports import ObjectKey, ObjectStat
from scopekv.ports.objects import Bytes, Wanted

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import S3Config

Result = TypeVar("Result")

PAGE_OBJECTS = 1000  # S3's own
_ASKED_AT_ONCE = 8
_OPTIONS = ("endpoint", "region", "access_key_id", "secret_access_key", "session_token")


class S3ObjectStore:
    """The object store of a fleet. See `open_store` for the URL.

    Credentials: in the URL, else the standard AWS variables, else the instance's or pod's role.
    """

    medium = "s3"

    def __init__(self, url: str, patience: urls.Patience) -> None:
        parts = urls.split(url)
        values = urls.options(parts, _OPTIONS)
        if not parts.hostname or parts.username or parts.port:
            raise ConfigError(
                "an S3 URL is s3://bucket[/prefix][?endpoint=http://host:port][&region=...]"
            )
        self._bucket = parts.netloc
        endpoint = values.get("endpoint", "")
        self._place = f"S3 bucket {self._bucket}" + (f" at {endpoint}" if endpoint else "")
        self._call_seconds = patience.call_seconds
        config: S3Config = {name: values[name] for name in _OPTIONS if values.get(name)}  # type: ignore[assignment]
        call = timedelta(seconds=patience.call_seconds)
        try:
            self._store: S3Store | None = S3Store(
                self._bucket,
                prefix=parts.path.strip("/") or None,
                config=config,
                client_options={
                    "allow_http": endpoint.startswith("http://"),
                    "connect_timeout": timedelta(seconds=patience.connect_seconds),
                    "timeout": call,
                },
                retry_config={
                    "max_retries": 1,
                    "retry_timeout": call / 2,
                    "backoff": {
                        "init_backoff": timedelta(milliseconds=20),
                        "max_backoff": timedelta(milliseconds=100),
                        "base": 2,
                    },
                },
            )
        except (BaseError, ValueError):
            raise ConfigError(f"the settings for the {self._place} cannot be used") from None
        self._askers = ThreadPoolExecutor(_ASKED_AT_ONCE, "scopekv-s3")

    def put(self, key: ObjectKey, parts: Sequence[Bytes]) -> None:
        path = path_of(key)
        with self._using() as store:
            obstore.put(store, path, b"".join(parts), use_multipart=False)

    def get(self, key: ObjectKey, into: memoryview) -> int | None:
        path = path_of(key)
        view = into.cast("B")
        with self._using() as store:
            try:
                found = obstore.get(store, path)
            except FileNotFoundError as error:
                self._refuse_missing_bucket(error)
                return None
            size_bytes = found.meta["size"]
            if size_bytes <= len(view):
                view[:size_bytes] = memoryview(found.bytes())
        return size_bytes

    def present(self, keys: Sequence[ObjectKey]) -> frozenset[ObjectKey]:
        """Ask for each, eight at once; where that is more than a page of a folder, list first.

        Reads at most one page for every eight keys, then asks for what the pages did not show.
        """
        paths = {path_of(key): key for key in keys}
        folders: dict[str, list[ObjectKey]] = {}
        for key in keys:
            folders.setdefault(key.chain, []).append(key)
        found: set[ObjectKey] = set()
        unsure: list[str] = []
        for chain, wanted in folders.items():
            listed, whole = self._listed(chain, pages=len(wanted) // _ASKED_AT_ONCE)
            found.update(listed.intersection(wanted))
            if not whole:
                unsure += [path_of(key) for key in wanted if key not in listed]
        with self._using():
            answers = list(self._askers.map(self._exists, unsure))
        found.update(paths[path] for path, there in zip(unsure, answers, strict=True) if there)
        return frozenset(found)

    def delete(self, keys: Sequence[ObjectKey]) -> int:
        """S3 does not say what was there, so this asks before it deletes."""
        there = [path_of(key) for key in self.present(keys)]
        if there:
            with self._using() as store:
                obstore.delete(store, there)
        return len(there)

    def chains(self) -> Iterator[str]:
        with self._using() as store:
            found = obstore.list_with_delimiter(store)["common_prefixes"]
        yield from (name for name in (path.strip("/") for path in found) if is_chain(name))

    def objects(self, chain: str | Wanted | None = None) -> Iterator[ObjectStat]:
        """A request for each thousand; for wanted folders one more for each of them."""
        prefixes: Iterable[str | None]
        if chain is None or isinstance(chain, str):
            prefixes = [None if chain is None else checked_chain(chain)]
        else:
            prefixes = (name for name in self.chains() if chain(name))
        for prefix in prefixes:
            for meta in itertools.chain.from_iterable(self._pages(prefix)):
                key = key_of(meta["path"])
                if key is not None:
                    yield ObjectStat(key, meta["size"], meta["last_modified"].timestamp())

    def quarantine(self, key: ObjectKey) -> None:
        """Delete it. A bucket with versions keeps it as it is told to."""
        path = path_of(key)
        with self._using() as store:
            obstore.delete(store, [path])

    def quarantined(self) -> Iterator[ObjectStat]:
        """Nothing is kept."""
        with self._using():
            return iter(())

    def close(self) -> None:
        self._store = None
        self._askers.shutdown(wait=False)

    @contextlib.contextmanager
    def _using(self) -> Iterator[S3Store]:
        """Whatever goes wrong is `Unavailable`, in our words: a server's may hold key ids."""
        store = self._store
        if store is None:
            raise Unavailable(f"the {self._place} is closed")
        try:
            yield store
        except (BaseError, OSError, ValueError, RuntimeError) as error:
            raise Unavailable(f"the {self._place}: {self._meaning(error)}") from None

    def _meaning(self, error: Exception) -> str:
        text = f"{type(error).__name__} {error}"
        if "NoSuchBucket" in text:
            return "there is no such bucket: make it"
        if "PermissionDenied" in text or "Unauthenticated" in text:
            return "access is denied: check the credentials and the bucket's policy"
        if "timed out" in text or "Timeout" in text:
            return f"no answer within {self._call_seconds} s"
        return f"out of reach ({type(error).__name__})"

    def _refuse_missing_bucket(self, error: FileNotFoundError) -> None:
        if "NoSuchBucket" in str(error):
            raise error

    def _exists(self, path: str) -> bool:
        with self._using() as store:
            try:
                obstore.head(store, path)
            except FileNotFoundError:
                return False
        return True

    def _pages(self, chain: str | None) -> Iterator[list[ObjectMeta]]:
        with self._using() as store:
            stream = obstore.list(store, chain, chunk_size=PAGE_OBJECTS)
        while True:
            page = self._next(lambda: next(stream, None))
            if page is None:
                return
            yield list(page)

    def _next(self, step: Callable[[], Result]) -> Result:
        with self._using():
            return step()

    def _listed(self, chain: str, pages: int) -> tuple[set[ObjectKey], bool]:
        """The keys on the first pages of a folder, and whether that is all of it."""
        found: set[ObjectKey] = set()
        listing = self._pages(chain)
        for _ in range(pages):
            page = next(listing, None)
            if page is None:
                return found, True
            keys = (key_of(meta["path"]) for meta in page)
            found.update(key for key in keys if key is not None)
            if len(page) < PAGE_OBJECTS:
                return found, True
        return found, False
