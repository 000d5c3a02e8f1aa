"""Who sent a traced request: no public trace says, so it is drawn, and printed with the result.

    session --> user --> organisation      one session is one user's, always
    organisation     by the skew of demand among real API clients (`demand`)
    a document       public, or of one organisation, whose users alone have sessions on it

Random per request tears conversations apart: no service is like that. It is the worst case, and
labelled so.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import StrEnum

from scopekv.core.values import light_value
from scopekv.errors import Misuse
from scopekv.simulate.fleet.demand import Demand, servegen_weights
from scopekv.simulate.fleet.dice import draw
from scopekv.simulate.fleet.identity import Layers, Tenant, layers_of
from scopekv.simulate.fleet.sessions import Sessions
from scopekv.simulate.fleet.shared_text import Profile
from scopekv.simulate.traces.request import UNKNOWN, TracedRequest

_REMEMBERED_MAX = 1 << 20


class Assignment(StrEnum):
    """SESSION: as services are. RANDOM: each request anybody's, the labelled worst case."""

    SESSION = "session"
    RANDOM = "random"


class Skew(StrEnum):
    SERVEGEN = "servegen"
    EVEN = "even"


@dataclass(frozen=True, slots=True)
class TenantSpec:
    """`public`: the part of shared documents that everyone may read; no public data says it."""

    orgs: int = 20
    users: int = 400
    public: float = 0.25
    skew: Skew = Skew.SERVEGEN
    assign: Assignment = Assignment.SESSION

    def __post_init__(self) -> None:
        if not 1 <= self.orgs <= self.users:
            raise Misuse(f"{self.users} users cannot fill {self.orgs} organisations: 1 to a user")
        if not 0 <= self.public <= 1:
            raise Misuse(f"the public part of documents is from 0 to 1, not {self.public}")

    @classmethod
    def parse(cls, text: str) -> TenantSpec:
        """Read `orgs=20,users=400,public=0.25,skew=servegen,assign=session`, each optional."""
        kinds: dict[str, Callable[[str], object]] = {
            "orgs": int,
            "users": int,
            "public": float,
            "skew": Skew,
            "assign": Assignment,
        }
        found: dict[str, object] = {}
        for part in filter(None, text.split(",")):
            name, _, value = part.partition("=")
            try:
                found[name] = kinds[name](value)
            except (KeyError, ValueError) as error:
                raise Misuse(
                    f"tenants {part[:60]!r}: write orgs=N, users=N, public=0.25, "
                    "skew=servegen|even, assign=session|random, joined by commas"
                ) from error
        return cls(**found)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return ",".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


@light_value()
class Placed:
    """A request with its sender, its conversation and the layers of its prompt."""

    request: TracedRequest
    session: int
    tenant: Tenant
    layers: Layers


class Tenancy:
    """Draws senders for one pass over a trace; a new one for each pass.

    `named`: how many organisations and users the trace itself names. Then only what of the shared
    text is public is drawn.
    """

    def __init__(
        self, spec: TenantSpec, seed: int, profile: Profile, named: tuple[int, int] | None = None
    ) -> None:
        self.orgs, self.users = named or (spec.orgs, spec.users)
        self._spec, self._seed, self._profile = spec, seed, profile
        even = spec.skew is Skew.EVEN
        self._demand = Demand([1.0] * spec.orgs if even else servegen_weights(spec.orgs))
        self._sessions = Sessions()
        self._tenants: OrderedDict[int, Tenant] = OrderedDict()
        self._count = 0

    def place(self, request: TracedRequest) -> Placed:
        """The next request of the pass, in the trace's order."""
        session = self._sessions.of(request)
        layers, document = self._layers(request)
        self._count += 1
        if request.user != UNKNOWN:
            tenant = Tenant(request.user, request.org)
        elif self._spec.assign is Assignment.RANDOM:
            tenant = self._drawn(self._count, None)
        else:
            tenant = self._tenants.get(session) or self._drawn(session, document)
            self._tenants[session] = tenant
            if len(self._tenants) > _REMEMBERED_MAX:
                self._tenants.popitem(last=False)
        return Placed(request, session, tenant, layers)

    def _layers(self, request: TracedRequest) -> tuple[Layers, int | None]:
        """The layers, and the first block of a document of one organisation, if there is one."""
        if request.tools_tokens or request.system_tokens:
            return layers_of(request), None
        shared, wide, ids = self._profile.shared, self._profile.wide, request.block_ids
        end = 0
        while end < len(ids) and ids[end] in shared:
            end += 1
        head = 0
        while head < end and ids[head] in wide:
            head += 1
        if head == end or draw(self._seed, 1, ids[head]) < self._spec.public:
            return Layers(end, end), None
        return Layers(head, end), ids[head]

    def _drawn(self, number: int, document: int | None) -> Tenant:
        seed = self._seed
        at = draw(seed, 2, number) if document is None else draw(seed, 3, document)
        org = self._demand.pick(at)
        first, rest = divmod(self.users, self.orgs)
        count = first + (org < rest)
        start = org * first + min(org, rest)
        return Tenant(start + int(draw(seed, 4, number) * count), org)


class KnownTenancy:
    """Senders that the workload itself names, by conversation."""

    def __init__(self, orgs: int, users: int, of: Callable[[int], Tenant]) -> None:
        self.orgs, self.users, self._of = orgs, users, of

    def place(self, request: TracedRequest) -> Placed:
        return Placed(request, request.session, self._of(request.session), layers_of(request))


class LoggedTenancy:
    """Senders that each request names itself; conversations are told apart by prefixes."""

    def __init__(self, orgs: int, users: int) -> None:
        self.orgs, self.users = orgs, users
        self._sessions = Sessions()

    def place(self, request: TracedRequest) -> Placed:
        session = self._sessions.of(request)
        return Placed(request, session, Tenant(request.user, request.org), layers_of(request))
