"""A bucket as its owner sees it: every object below the prefix."""

from __future__ import annotations

from collections.abc import Iterator

import obstore

from scopekv.adapters.objects.s3 import S3ObjectStore
from scopekv.adapters.objects.urls import Patience
from scopekv.audit.store.media import Found


class BucketMedium:
    """S3 and what speaks it. Versions and unfinished uploads are not listed."""

    kind = "s3"

    def __init__(self, url: str, patience: Patience) -> None:
        self._store = _Requests(url, patience)
        self.place = self._store.place

    def walk(self) -> Iterator[Found]:
        return self._store.walk()

    def read(self, name: str, size_bytes_max: int) -> bytes | None:
        return self._store.read(name, size_bytes_max)

    def write(self, name: str, content: bytes) -> None:
        self._store.write(name, content)

    def remove(self, name: str) -> None:
        self._store.remove(name)

    def close(self) -> None:
        self._store.close()


class _Requests(S3ObjectStore):
    """The adapter's client, deadlines and errors, with names that need not be ours."""

    @property
    def place(self) -> str:
        return f"s3://{self._bucket}"

    def walk(self) -> Iterator[Found]:
        for page in self._pages(None):
            for meta in page:
                yield Found(meta["path"], meta["size"], meta["last_modified"].timestamp())

    def read(self, name: str, size_bytes_max: int) -> bytes | None:
        with self._using() as store:
            try:
                found = obstore.get(store, name)
            except FileNotFoundError as error:
                self._refuse_missing_bucket(error)
                return None
            if found.meta["size"] <= size_bytes_max:
                return bytes(memoryview(found.bytes()))
            return bytes(memoryview(obstore.get_range(store, name, start=0, end=size_bytes_max)))

    def write(self, name: str, content: bytes) -> None:
        with self._using() as store:
            obstore.put(store, name, content, use_multipart=False)

    def remove(self, name: str) -> None:
        with self._using() as store:
            obstore.delete(store, [name])
