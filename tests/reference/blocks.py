"""Block identity the obvious way: look at every token of the block, then at its parent."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

Keyed = tuple[bytes, int]


def scopes_of_block(
    ends: Sequence[int], scopes: Sequence[Keyed], start: int, stop: int
) -> list[Keyed]:
    """The scopes of tokens [start, stop), each once, in order of appearance of its segment."""
    touched: list[int] = []
    for token in range(start, stop):
        segment = 0
        while segment < len(ends) and token >= ends[segment]:
            segment += 1
        if segment not in touched:
            touched.append(segment)
    return [scopes[segment] for segment in touched]


def identities(
    tokens: Sequence[int], ends: Sequence[int], scopes: Sequence[Keyed], block_size: int
) -> list[str]:
    """A name for what each whole block's identity covers: (parent, tokens, scopes)."""
    names, parent = [], "start"
    for start in range(0, len(tokens) - block_size + 1, block_size):
        stop = start + block_size
        covered = scopes_of_block(ends, scopes, start, stop)
        whole = repr((parent, tuple(tokens[start:stop]), covered))
        parent = hashlib.sha256(whole.encode()).hexdigest()
        names.append(parent)
    return names
