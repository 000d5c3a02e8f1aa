"""The gateway's own request log (`core/request_log.py`): real tenants, no text.

Lines are in order of answers, so some thousands are held to give them in order of arrival. What a
prompt has after its last full block gets an id that never comes again: no engine finds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from scopekv.core.request_log import LoggedRequest, read_logged
from scopekv.core.scopes import ScopeKind
from scopekv.errors import Misuse
from scopekv.simulate.traces.lines import Lines, read_object
from scopekv.simulate.traces.naming import Numbers
from scopekv.simulate.traces.ordering import by_time
from scopekv.simulate.traces.request import TracedRequest

_MS_MAX, _TOKENS_MAX = 1 << 50, 1 << 40
_WIDE = {ScopeKind.DOCUMENT}
_WIDER_THAN_USER = {ScopeKind.DOCUMENT, ScopeKind.ORG}


def read_request_log(lines: Lines) -> Iterator[TracedRequest]:
    """Requests by arrival; senders are numbered as they appear in the file.

    Raises Misuse for a line that is none, or has another block size, or comes far too late.
    """
    users, orgs = Numbers(), Numbers()
    for since_ms, number, (one, user, org) in by_time(lines, _logged(lines, users, orgs)):
        yield _traced(one, number, since_ms, user, org)


def _logged(
    lines: Lines, users: Numbers, orgs: Numbers
) -> Iterator[tuple[float, tuple[LoggedRequest, int, int]]]:
    size = 0
    for text in lines:
        fields = read_object(lines, text)
        try:
            one = read_logged(fields)
        except Misuse as error:
            raise lines.wrong(str(error)) from error
        size = size or one.block_tokens
        if one.block_tokens != size:
            raise lines.wrong(f"has blocks of {one.block_tokens} tokens, those above of {size}")
        if one.at_ms >= _MS_MAX or one.answer_tokens >= _TOKENS_MAX:
            raise lines.wrong("has a timestamp or an output_length out of all bounds")
        if len(set(one.blocks)) != len(one.blocks):
            raise lines.wrong("names one block twice: each name is of all tokens up to its end")
        yield one.at_ms, (one, users.of(one.user), orgs.of(one.org))


def _traced(one: LoggedRequest, number: int, since_ms: float, user: int, org: int) -> TracedRequest:
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
