"""The gateway's own request log (`core/request_log.py`): real tenants, no text.

Lines are in order of answers, so some thousands are held to give them in order of arrival. What a
prompt has after its last full block gets an id that never comes again: no engine finds it.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import takewhile

from scopekv.core.request_log import LoggedRequest, read_logged
from scopekv.core.scopes import ScopeKind
from scopekv.errors import Misuse
from scopekv.simulate.traces.lines import Lines, read_object
from scopekv.simulate.traces.request import TracedRequest

HELD_MAX = 16_384
_WIDE = {ScopeKind.DOCUMENT}
_WIDER_THAN_USER = {ScopeKind.DOCUMENT, ScopeKind.ORG}


def read_request_log(lines: Lines) -> Iterator[TracedRequest]:
    """Requests by arrival; senders are numbered as they appear in the file.

    Raises Misuse for a line that is none, or that came HELD_MAX requests late.
    """
    numbers: dict[str, int] = {}
    orgs: dict[str, int] = {}
    held: list[tuple[int, int, LoggedRequest]] = []
    began: int | None = None
    latest = 0
    for text in lines:
        try:
            one = read_logged(read_object(lines, text))
        except Misuse as error:
            raise (error if str(lines.path) in str(error) else lines.wrong(str(error))) from error
        if one.at_ms < latest:
            raise lines.wrong("is of a request long before those above it: sort the file")
        numbers.setdefault(one.user, len(numbers))
        orgs.setdefault(one.org, len(orgs))
        heapq.heappush(held, (one.at_ms, lines.number, one))
        if len(held) > HELD_MAX:
            latest, number, one = heapq.heappop(held)
            began = latest if began is None else began
            yield _traced(one, number, latest - began, numbers[one.user], orgs[one.org])
    while held:
        at, number, one = heapq.heappop(held)
        began = at if began is None else began
        yield _traced(one, number, at - began, numbers[one.user], orgs[one.org])


def _traced(one: LoggedRequest, number: int, since_ms: int, user: int, org: int) -> TracedRequest:
    ids = [int(name, 16) for name in one.blocks]
    if len(ids) * one.block_tokens < one.prompt_tokens:
        ids.append(-number)
    public, shared = (_leading(one, kinds) for kinds in (_WIDE, _WIDER_THAN_USER))
    size = one.block_tokens
    return TracedRequest(
        at_seconds=since_ms / 1000,
        input_tokens=one.prompt_tokens,
        output_tokens=one.answer_tokens,
        block_tokens=size,
        block_ids=ids,
        tools_tokens=public * size,
        system_tokens=(shared - public) * size,
        user=user,
        org=org,
    )


def _leading(one: LoggedRequest, kinds: set[ScopeKind]) -> int:
    return sum(count for _, count in takewhile(lambda run: run[0] in kinds, one.scopes))
