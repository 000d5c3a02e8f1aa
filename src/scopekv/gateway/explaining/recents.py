"""What callers sent of late, so that a miss can be explained: in memory, for its sender alone."""

from __future__ import annotations

from collections import OrderedDict
from itertools import islice

from scopekv.core.scopes import Scope
from scopekv.core.values import light_value

KEPT_BYTES_MAX = 32 << 20
KEPT_PER_CALLER_MAX = 32


@light_value(repr=False)
class Recent:
    """One answered request. `content`: its body. `principal`: uid of who sent it, `sender`: that
    one's ORG/NAME; `owner`: its narrowest scope, `own_epoch` that one's epoch.

    `at_seconds`: monotonic. `epochs`: of its segments' scopes, in order.
    """

    request_id: str
    principal: str
    owner: Scope
    own_epoch: int
    path: str
    content: bytes
    at_seconds: float
    instance: str
    whole_prompt: bool
    epochs: tuple[tuple[Scope, int], ...]
    cached: int | None
    fetch_reason: str
    prompt_tokens: int | None
    sender: str


class Recents:
    """Bounded in bytes and per caller; the oldest is forgotten first."""

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max, self._bytes = bytes_max, 0
        self._all: OrderedDict[str, Recent] = OrderedDict()
        self._of: dict[Scope, OrderedDict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._all)

    @property
    def held_bytes(self) -> int:
        """Bodies that are held; never above the limit."""
        return self._bytes

    def add(self, recent: Recent) -> None:
        """Keep a request; one larger than the limit is not kept."""
        if len(recent.content) > self._bytes_max:
            return
        own = self._of.get(recent.owner)
        if own is not None and len(own) >= KEPT_PER_CALLER_MAX:
            self._drop(next(iter(own)))
        while self._bytes + len(recent.content) > self._bytes_max:
            self._drop(next(iter(self._all)))
        self._all[recent.request_id] = recent
        own = self._of.get(recent.owner)
        if own is None:
            own = self._of[recent.owner] = OrderedDict()
        own[recent.request_id] = None
        self._bytes += len(recent.content)

    def get(self, request_id: str) -> Recent | None:
        return self._all.get(request_id)

    def newest(self, limit: int, *, principal: str = "", org: str = "") -> list[Recent]:
        """The last requests of one principal, of one organisation (uids), or of all."""
        found = (
            one
            for one in reversed(self._all.values())
            if principal in ("", one.principal) and org in ("", one.owner.path[0])
        )
        return list(islice(found, limit))

    def before(self, owner: Scope, request_id: str | None) -> list[Recent]:
        """The owner's requests, newest first; those before `request_id` if one is given."""
        found: list[Recent] = []
        for name in self._of.get(owner, ()):
            if name == request_id:
                break
            found.append(self._all[name])
        return found[::-1]

    def owners(self) -> list[Scope]:
        return list(self._of)

    def forget(self, owner: Scope, epoch: int) -> None:
        """Drop what an owner sent under another epoch than this: it was revoked since."""
        for name in list(self._of.get(owner, ())):
            if self._all[name].own_epoch != epoch:
                self._drop(name)

    def _drop(self, request_id: str) -> None:
        recent = self._all.pop(request_id)
        self._bytes -= len(recent.content)
        own = self._of[recent.owner]
        del own[request_id]
        if not own:
            del self._of[recent.owner]
