"""One store with objects of the audit's own prompts in it, to be changed and put back.

Only objects of those prompts are ever touched. `put_back` undoes everything, whenever it is
called; after it nothing is changed any more.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence

from scopekv.adapters.objects.claim import QUARANTINE
from scopekv.audit.store.media import Found, Medium
from scopekv.errors import Misuse

_WHOLE = 64 << 20


class Workbench:
    """Blocking, and safe to be called from several threads."""

    def __init__(self, medium: Medium, objects: Iterable[Found]) -> None:
        """Reads these objects, so that they can be put back."""
        self.medium = medium
        self._lock = threading.Lock()
        self._closed = False
        self.saved: dict[str, bytes] = {}
        self._written: dict[str, set[bytes]] = {}  # what was put under a name by us
        self._touched: set[str] = set()
        for one in objects:
            content = medium.read(one.name, _WHOLE)
            if content is not None:
                self.saved[one.name] = content

    def contents(self, objects: Sequence[Found]) -> dict[str, bytes]:
        """What was saved of these."""
        return {one.name: self.saved[one.name] for one in objects if one.name in self.saved}

    def change(self, changes: Mapping[str, bytes | None]) -> None:
        """Write, or remove where None. Raises `Misuse` for a name that is none of the audit's."""
        if not changes.keys() <= self.saved.keys() | self._written.keys():
            raise Misuse("an audit changes nothing but the objects of its own prompts")
        with self._lock:
            for name, content in changes.items():
                if self._closed:
                    return
                self._touched.add(name)
                if content is None:
                    self.medium.remove(name)
                else:
                    self._written.setdefault(name, set()).add(content)
                    self.medium.write(name, content)

    def unchanged(self, changes: Mapping[str, bytes | None]) -> int:
        """How many of these still lie there as they were written."""
        return sum(
            content is not None and self.medium.read(name, _WHOLE) == content
            for name, content in changes.items()
        )

    def present(self, names: Iterable[str]) -> int:
        """How many of these lie there, whoever wrote them."""
        return sum(self.medium.read(name, _WHOLE) is not None for name in names)

    def restore(self) -> None:
        """Put back what is gone or still ours; what a tier wrote anew stays."""
        with self._lock:
            self._restore()

    def put_back(self) -> None:
        """The last `restore`; and what was set aside because of us goes."""
        with self._lock:
            if self._closed:
                return
            self._restore()
            self._closed = True
            ours = {}
            for name, written in self._written.items():
                one = Found(name, 0)
                ours[f"{one.chain}.{one.leaf}"] = written - {self.saved.get(name)}
            for one in self.medium.walk() if self.medium.kind == "directory" else ():
                aside = ours.get(one.leaf) if QUARANTINE in one.parts else None
                if aside and self.medium.read(one.name, _WHOLE) in aside:
                    self.medium.remove(one.name)

    def _restore(self) -> None:
        for name in self._touched | self._written.keys():
            now = self.medium.read(name, _WHOLE)
            saved = self.saved.get(name)
            ours = now is not None and now in self._written.get(name, ()) and now != saved
            if saved is None:
                if ours:
                    self.medium.remove(name)
            elif now is None or ours:
                self.medium.write(name, saved)
        self._touched.clear()
