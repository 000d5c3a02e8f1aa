"""Which names an object may have, checked by every adapter before a name meets a path or a key."""

from __future__ import annotations

import re

from scopekv.errors import Misuse
from scopekv.ports import ObjectKey

CHAIN_CHARS_MAX = 211  # core.chains.folder at its longest
NAME_CHARS_MAX = 43  # so that `<chain>.<name>` fits the 255 bytes of a file name
_CHAIN = re.compile(rf"[a-z0-9-]{{1,{CHAIN_CHARS_MAX}}}")
_NAME = re.compile(rf"[a-z0-9-]{{1,{NAME_CHARS_MAX}}}")


def checked_chain(chain: str) -> str:
    """Return `chain` if it can be a folder's name; else `Misuse`."""
    if not _CHAIN.fullmatch(chain):
        raise Misuse(
            f"a folder's name has 1 to {CHAIN_CHARS_MAX} characters of a-z, 0-9 and -, this one "
            f"has {len(chain)}"
        )
    return chain


def path_of(key: ObjectKey, separator: str = "/") -> str:
    """Return `<chain>/<name>`; `Misuse` for a name that is none of ours."""
    checked_chain(key.chain)
    if not _NAME.fullmatch(key.name):
        raise Misuse(
            f"an object's name has 1 to {NAME_CHARS_MAX} characters of a-z, 0-9 and -, this one "
            f"has {len(key.name)}"
        )
    return f"{key.chain}{separator}{key.name}"


def key_of(path: str, separator: str = "/") -> ObjectKey | None:
    """The key whose path this is; None for what others put into the store."""
    chain, found, name = path.partition(separator)
    if not found or not _CHAIN.fullmatch(chain) or not _NAME.fullmatch(name):
        return None
    return ObjectKey(chain, name)


def is_chain(name: str) -> bool:
    return _CHAIN.fullmatch(name) is not None
