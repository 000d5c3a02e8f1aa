"""Addresses of servers as people give them: with what clients of the API need at the end or not."""

from __future__ import annotations

import re

_TAIL = re.compile(
    r"(?<![:/])(?:/+v1(?:/+(?:chat/completions|completions|responses|messages|models))?)?/*\Z"
)


def server_root(url: str) -> str:
    """The address without a `/v1`, a path below it, or slashes at its end.

    A path before them stays: a proxy's. What is no address stays as it is.
    """
    return _TAIL.sub("", url, count=1)
