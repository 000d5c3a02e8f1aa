"""One measure of isolation for tests, attacks and benchmarks: never a negative without a positive.

A test that finds no hit across callers proves nothing while nobody hits at all (case I3).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

Ask = Callable[[str], Awaitable[int]]  # who -> cached tokens of that caller's request


class Leak(AssertionError):
    """Somebody read from the cache what it may not."""


class NothingProved(AssertionError):
    """The owner itself did not hit, so that others did not says nothing."""


async def assert_isolated(
    ask: Ask, *, owner: str, others: Sequence[str], shared_tokens: int = 0
) -> None:
    """Let `owner` fill the cache, each of `others` try, and `owner` come back.

    `ask` sends one and the same prompt as the caller it is given. `shared_tokens`: what all may
    share of it, in whole blocks. Raises `Leak` or `NothingProved`.
    """
    await ask(owner)
    for other in others:
        cached = await ask(other)
        if cached > shared_tokens:
            raise Leak(f"{other} read {cached} tokens of {owner}; it may read {shared_tokens}")
        if cached < shared_tokens:
            raise NothingProved(f"{other} read {cached} of the {shared_tokens} shared tokens")
    cached = await ask(owner)
    if cached <= shared_tokens:
        raise NothingProved(
            f"{owner} read {cached} tokens of its own prompt the second time, of which "
            f"{shared_tokens} are anybody's: is the cache on?"
        )
