"""Chains, their tags and folders."""

import pytest

from scopekv.core.chains import (
    LINKS_MAX,
    Chain,
    Link,
    chain_at,
    folder,
    holds_any,
    retention_of,
    tag,
    tags_of,
)
from scopekv.core.scopes import ScopeId
from scopekv.core.tickets import Grant
from scopekv.errors import Misuse

DOCUMENT, ORG, USER = (ScopeId(bytes([number]) * 16) for number in (1, 2, 3))


def grants(*parts: tuple[ScopeId, int, int | None]) -> list[Grant]:
    return [
        Grant(end, scope, epoch, b"" if end is None else b"d" * 32) for scope, epoch, end in parts
    ]


@pytest.mark.parametrize(
    ("end", "scopes"),
    [
        (1, [DOCUMENT]),
        (70, [DOCUMENT]),
        (71, [DOCUMENT, ORG]),
        (100, [DOCUMENT, ORG]),
        (101, [DOCUMENT, ORG, USER]),
        (9000, [DOCUMENT, ORG, USER]),
    ],
)
def test_a_chain_holds_every_scope_before_the_end_of_the_block(
    end: int, scopes: list[ScopeId]
) -> None:
    parts = grants((DOCUMENT, 4, 70), (ORG, 5, 100), (USER, 6, None))
    assert [link.scope for link in chain_at(parts, end)] == scopes


def test_a_scope_that_comes_back_is_one_link() -> None:
    parts = grants((ORG, 1, 10), (DOCUMENT, 1, 20), (ORG, 1, 30), (USER, 1, None))
    assert [link.scope for link in chain_at(parts, 40)] == [ORG, DOCUMENT, USER]


def test_no_block_ends_before_its_first_token() -> None:
    with pytest.raises(Misuse):
        chain_at(grants((USER, 1, None)), 0)


def test_a_folder_tells_its_tags_and_retention_and_nothing_else() -> None:
    chain: Chain = (Link(DOCUMENT, 1), Link(USER, 7))
    name = folder(chain, 86_400)
    assert name is not None
    assert tags_of(name) == {tag(link) for link in chain}
    assert retention_of(name) == 86_400
    assert holds_any(name, [tag(Link(USER, 7))])
    assert not holds_any(name, [tag(Link(USER, 8)), tag(Link(ORG, 7))])
    assert DOCUMENT.hex() not in name


def test_folders_differ_by_order_epoch_and_retention() -> None:
    one, two = Link(DOCUMENT, 1), Link(USER, 1)
    names = [folder((one, two), 60), folder((two, one), 60), folder((one,), 60)]
    names += [folder((one, two), 61), folder((one, Link(USER, 2)), 60)]
    assert len(set(names)) == len(names)


def test_a_chain_that_is_empty_or_too_long_has_no_folder() -> None:
    links = tuple(Link(USER, epoch) for epoch in range(LINKS_MAX + 1))
    assert folder((), 60) is None
    assert folder(links, 60) is None
    longest = folder(links[:-1], 9_999_999_999)
    assert longest is not None
    assert len(longest) < 255
    assert len(tags_of(longest)) == LINKS_MAX


@pytest.mark.parametrize(
    "name",
    [
        *("", "r60", "r60-", "r0-" + "a" * 24, "r060-" + "a" * 24, "60-" + "a" * 24),
        *("r60-" + "a" * 23, "r60-" + "A" * 24, "r60-" + "a" * 25, "r60-" + "a" * 24 + "\n"),
        *("r60" + ("-" + "a" * 24) * 9, "../r60-" + "a" * 24, "lost+found"),
    ],
)
def test_a_name_that_is_not_ours_has_no_tags_and_no_retention(name: str) -> None:
    assert tags_of(name) == frozenset()
    assert retention_of(name) is None
    assert not holds_any(name, [tag(Link(USER, 1))])
