"""Policy and segments the obvious way: one scope per character of a toy prompt, then ranges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from scopekv.core.policy import Document
from scopekv.core.scopes import Principal

Flat = tuple[str, ...]


def readable(who: Principal, document: Document) -> bool:
    written = str(document.audience)
    names = {"public", f"org:{who.org}", f"user:{who.org}/{who.name}"}
    names |= {f"group:{who.org}/{group}" for group in who.groups}
    return not document.withdrawn and written in names


def private(who: Principal, end_user: str, session: str) -> Flat:
    if session:
        return ("session", who.org_uid, who.uid, end_user, session)
    if end_user:
        return ("end_user", who.org_uid, who.uid, end_user)
    return ("user", who.org_uid, who.uid)


def scopes(
    who: Principal,
    own: Flat,
    rules: Mapping[str, str],
    parts: Sequence[tuple[str, Document | None]],
) -> list[Flat]:
    """The scope of each part as a flat tuple."""
    found: list[Flat] = []
    for role, document in parts:
        if document is not None and readable(who, document):
            found.append(("document", document.uid))
        elif (
            document is not None
            or own in found
            or rules[role] != "org"
            or (role == "messages" and own[0] != "user")
        ):
            found.append(own)
        else:
            found.append(("org", who.org_uid))
    return found


def segments(
    found: Sequence[Flat], ends: Sequence[int], own: Flat, most: int
) -> list[tuple[int, int | None, Flat]]:
    """(start, end, scope): a list of one scope per token, read off in runs."""
    per_token: list[Flat] = []
    for scope, end in zip(found, ends, strict=True):
        if end <= len(per_token):
            break
        per_token += [scope] * (end - len(per_token))
    runs: list[tuple[int, int | None, Flat]] = []
    for position, scope in enumerate(per_token):
        if not runs or runs[-1][2] != scope:
            runs.append((position, position + 1, scope))
        runs[-1] = (runs[-1][0], position + 1, scope)
    runs = runs[: most - 1]
    while runs and runs[-1][2] == own:
        runs.pop()
    return [*runs, (runs[-1][1] or 0 if runs else 0, None, own)]
