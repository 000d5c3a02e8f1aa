"""Scope chains: every scope before the end of a block, and the folder its bytes lie in.

Reading a block takes permission for each scope of its chain (L1). In an outer tier the chain is a
folder, so that a revoked scope's objects are found by name, without opening any:

    r86400-3f0c...(24 hex)-91ab...(24 hex)
    |      |               one tag for each (scope, epoch) of the chain, in order
    retention in seconds

Tags are made of opaque ids, so a listing names nobody.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Container, Sequence
from functools import lru_cache
from typing import NamedTuple, NewType

from scopekv.core.encoding import encode
from scopekv.core.scopes import ScopeId
from scopekv.core.tickets import Grant
from scopekv.errors import Misuse

Tag = NewType("Tag", str)  # 24 hex digits

TAG_BYTES = 12
LINKS_MAX = 8  # a folder's name stays below 255 characters
_FOLDER = re.compile(r"r([1-9][0-9]{0,9})((?:-[0-9a-f]{24}){1,8})")


class Link(NamedTuple):
    """One scope of a chain, in one epoch."""

    scope: ScopeId
    epoch: int


Chain = tuple[Link, ...]


def chain_at(grants: Sequence[Grant], end: int) -> Chain:
    """The chain of the block that ends before token `end`: all grants that overlap [0, end)."""
    if end < 1:
        raise Misuse(f"a block ends after token 1 or later, not {end}")
    links: list[Link] = []
    for grant in grants:
        link = Link(grant.scope, grant.epoch)
        if link not in links:
            links.append(link)
        if grant.end is None or grant.end >= end:
            break
    return tuple(links)


@lru_cache(maxsize=65_536)
def tag(link: Link) -> Tag:
    """The public name of a (scope, epoch) in stores and purges."""
    digest = hashlib.sha256(encode("scopekv/tag/1", link.scope, link.epoch)).digest()
    return Tag(digest[:TAG_BYTES].hex())


@lru_cache(maxsize=4096)
def folder(chain: Chain, retention_seconds: int) -> str | None:
    """The folder of a chain; None for a chain too long to have one, which no tier keeps."""
    if not chain or len(chain) > LINKS_MAX:
        return None
    return "-".join((f"r{retention_seconds}", *(tag(link) for link in chain)))


@lru_cache(maxsize=65_536)
def tags_of(folder_name: str) -> frozenset[Tag]:
    """The tags in a folder's name; none for a name that is not ours."""
    found = _FOLDER.fullmatch(folder_name)
    return frozenset(Tag(part) for part in found[2][1:].split("-")) if found else frozenset()


@lru_cache(maxsize=65_536)
def retention_of(folder_name: str) -> int | None:
    """How many seconds the objects of a folder may be kept; None for a name that is not ours."""
    found = _FOLDER.fullmatch(folder_name)
    return int(found[1]) if found else None


def holds_any(folder_name: str, tags: Container[Tag]) -> bool:
    """Whether a purge of these tags reaches the folder. Cost: a look-up for each scope of it."""
    return any(one in tags for one in tags_of(folder_name))
