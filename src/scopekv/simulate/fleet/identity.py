"""Which blocks are one block, for whom: a traced block id with the scopes before it (L1).

A traced id names all tokens up to the end of its block. The layers of a prompt nest,

    blocks    0 .. public | .. org | .. end
    owner     everyone    | an organisation | a user of it

so the innermost owner names every scope before it, and the pair (traced id, owner) is equal exactly
where `core.blocks` gives equal tags all the way (test_identity_is_that_of_the_core). A block with
the first token of a narrower layer is the narrower layer's.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from scopekv.core.scopes import ScopeKind
from scopekv.core.values import light_value
from scopekv.errors import Misuse
from scopekv.simulate.traces.request import TracedRequest


class Isolation(StrEnum):
    """Who may reuse what, widest first but for ORG, which cuts the other way.

    NONE: one cache for everybody. GLOBAL: shared text, of organisations too, is everyone's; the
    rest is each user's. LAYERED: public text is everyone's, an organisation's its own, the rest
    each user's: what ScopeKV does. ORG: one salt for an organisation. USER: one salt for a user.
    """

    NONE = "none"
    GLOBAL = "global"
    LAYERED = "layered"
    ORG = "org"
    USER = "user"


_OWNER_BITS = 61
_OWNERS, _ODD = (1 << _OWNER_BITS) - 1, 0x9E3779B97F4A7C15
LAYER_KINDS = (ScopeKind.DOCUMENT, ScopeKind.ORG, ScopeKind.USER)


@light_value()
class Tenant:
    """Who sends a request: numbers from 0. A user belongs to one organisation."""

    user: int
    org: int


@light_value()
class Layers:
    """How many leading blocks are public, and how many public or the organisation's."""

    public_blocks: int
    org_blocks: int

    def __post_init__(self) -> None:
        if not 0 <= self.public_blocks <= self.org_blocks:
            raise Misuse("layers nest: public blocks first, then the organisation's")


def layers_of(request: TracedRequest) -> Layers:
    """Tool definitions are public, the system prompt is the organisation's, the rest private."""
    size = request.block_tokens
    shared = request.tools_tokens + request.system_tokens
    return Layers(request.tools_tokens // size, min(shared, request.input_tokens) // size)


class Identities:
    """Names blocks by number: the traced id, and below it 61 bits of the owner.

    A number's hash is what is left of it by 2^61 - 1, so the blocks of a prompt, where their ids
    are, are neighbours in every table; the owner's bits are spread, so that no owner's are
    another's. That is worth a tenth of a replay.
    """

    __slots__ = ("_isolation", "_orgs")

    def __init__(self, isolation: Isolation, *, orgs: int, users: int) -> None:
        self._isolation = isolation
        self._orgs = orgs
        if orgs + users >= 1 << _OWNER_BITS:
            raise Misuse(f"{orgs + users} owners are more than {_OWNER_BITS} bits can tell apart")

    def name(self, ids: Sequence[int], tenant: Tenant, layers: Layers) -> list[int]:
        """The names of a prompt's blocks, in order. Cost: a shift and a sum a block."""
        isolation, bits = self._isolation, _OWNER_BITS
        org, user = _spread(1 + tenant.org), _spread(1 + self._orgs + tenant.user)
        if isolation is Isolation.NONE:
            return [block << bits for block in ids]
        if isolation is Isolation.USER:
            return [(block << bits) + user for block in ids]
        if isolation is Isolation.ORG:
            return [(block << bits) + org for block in ids]
        public, shared = layers.public_blocks, layers.org_blocks
        if isolation is Isolation.GLOBAL:
            public = shared
        names = [block << bits for block in ids[:public]]
        names += [(block << bits) + org for block in ids[public:shared]]
        names += [(block << bits) + user for block in ids[shared:]]
        return names


def _spread(owner: int) -> int:
    """One to one: the factor is odd."""
    return owner * _ODD & _OWNERS
