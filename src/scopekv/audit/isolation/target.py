"""What is audited, and by which means: addresses, keys, and an administrator's hands.

Whoever audits (the command line, a test, a build with a planted fault) fills this in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from scopekv.core.scopes import Scope
from scopekv.core.tickets import KeyId, Sign
from scopekv.errors import ConfigError

Seat = tuple[str, str]  # an account: organisation, name


class Place(StrEnum):
    """Where the only copy of a block is when a caller asks for it."""

    ANY = "any"  # wherever the deployment put it: nobody can move it from here
    ENGINE = "engine"
    HOST = "host"
    DIRECTORY = "directory"
    VALKEY = "valkey"
    S3 = "s3"

    @property
    def shared(self) -> bool:
        """Whether every engine reads the same copy."""
        return self in (Place.VALKEY, Place.S3)

    @property
    def outer(self) -> bool:
        return self.shared or self is Place.DIRECTORY


class Registrar(Protocol):
    """An administrator of the audit's own principals. Calls block; each counts at once."""

    def publish(self, name: str, audience: str, text: str) -> str:
        """Publish a document; return its id."""
        ...

    def revise(self, ref: str, text: str) -> None: ...
    def set_audience(self, ref: str, audience: str) -> None: ...
    def withdraw(self, ref: str) -> None: ...
    def revoke_document(self, ref: str) -> None: ...
    def revoke_user(self, org: str, name: str) -> None: ...
    def revoke_session(self, org: str, name: str, session: str) -> None: ...
    def set_member(self, org: str, group: str, name: str, *, inside: bool) -> None: ...

    def recreate(self, org: str, name: str) -> str:
        """Delete an account and make another of its name; return that one's key."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class Forge:
    """The deployment's own secrets: to mint tickets of which one thing alone is wrong.

    `instance_secret`: by which engines ask for keys; empty where there is no key broker to try.
    """

    key_id: KeyId
    sign: Sign
    scope_secret: bytes
    instance_group: str
    user_scope: Callable[[str, str], Scope]  # of an account; blocks
    instance_secret: str = ""


@dataclass(frozen=True, slots=True)
class Member:
    """One account whose key the audit holds. Keys are elsewhere: this may be printed."""

    org: str
    name: str
    groups: frozenset[str] = frozenset()
    service: bool = False

    @property
    def seat(self) -> Seat:
        return self.org, self.name


@dataclass(frozen=True, slots=True, repr=False)
class EngineAccess:
    """One engine of the deployment. `restart`: ends it and returns when it is ready again."""

    name: str
    url: str
    api_key: str
    restart: Callable[[], Awaitable[None]] | None = None


@dataclass(frozen=True, slots=True, repr=False)
class IsolationTarget:
    """`url`: the endpoint under attack. `keys`: an API key for each member.

    `narrows`: whether the endpoint knows X-ScopeKV-User and X-ScopeKV-Session. `adapters`: names
    of further models on the same base. Without `engines` no tier can be tested alone; without a
    `registrar` no document and no change; without a `forge` no ticket.
    """

    url: str
    model: str
    members: tuple[Member, ...]
    keys: Mapping[Seat, str]
    engines: tuple[EngineAccess, ...] = ()
    registrar: Registrar | None = None
    forge: Forge | None = None
    adapters: tuple[str, ...] = ()
    narrows: bool = True
    versions: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [member.seat for member in self.members if member.seat not in self.keys]
        if missing or not self.members:
            raise ConfigError("an isolation audit needs members, and a key of each")
        users = [member for member in self.members if not member.service]
        if len(users) < 2:
            raise ConfigError(
                f"an isolation audit needs keys of two accounts, not of {len(users)}: without "
                "another caller there is nothing to isolate"
            )


@dataclass(frozen=True, slots=True)
class IsolationSettings:
    """`places`: the tiers to test; empty for all there are. `quick`: one endpoint, fewer attacks.

    `text_blocks`: whole blocks that an owner's text fills at least. `rounds_max`: how often a cell
    is tried that proved nothing. `settle_seconds_max`: how long tiers may take to come to rest.
    """

    seed: int
    places: tuple[Place, ...] = ()
    quick: bool = False
    block_size: int = 32
    text_blocks: int = 2
    rounds_max: int = 3
    settle_seconds_max: float = 20.0

    def __post_init__(self) -> None:
        if not 1 <= self.text_blocks <= 64 or not 1 <= self.block_size <= 1024:
            raise ConfigError("text_blocks takes 1 to 64, block_size 1 to 1024")
        if not 1 <= self.rounds_max <= 10 or not 0 < self.settle_seconds_max <= 600:
            raise ConfigError("rounds_max takes 1 to 10, settle_seconds_max up to 600")
