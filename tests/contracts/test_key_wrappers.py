"""The contract of `ports.KeyWrapper`, over a key file and over Vault's transit API."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from scopekv.adapters.root_key import FileKeyWrapper
from scopekv.adapters.vault import VaultKeyWrapper, VaultSettings
from scopekv.errors import Corrupt, Unavailable
from scopekv.ports import KeyWrapper
from tests.contracts.vault_server import TOKEN, VaultServer

KEY, CONTEXT = bytes(range(32)), b"scope 1, epoch 0"


@dataclass
class Place:
    """Where a root key is: `again` opens it once more, as another gateway does."""

    again: Callable[[], KeyWrapper]
    lose: Callable[[], None]
    find: Callable[[], None]


def _file(folder: Path) -> Place:
    path = folder / "keys" / "wrap.key"
    aside = folder / "aside"
    return Place(
        lambda: FileKeyWrapper(path), lambda: os.rename(path, aside), lambda: os.rename(aside, path)
    )


def _vault(server: VaultServer) -> Place:
    settings = VaultSettings(server.url)
    return Place(
        lambda: VaultKeyWrapper(settings, environment_token=TOKEN), server.stop, server.start
    )


@pytest.fixture(params=["file", "vault"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    opened: list[KeyWrapper] = []

    def kept(place: Place) -> Place:
        def again() -> KeyWrapper:
            opened.append(place.again())
            return opened[-1]

        return replace(place, again=again)

    if request.param == "file":
        yield kept(_file(tmp_path))
    else:
        with VaultServer() as server:
            yield kept(_vault(server))
    for wrapper in opened:
        wrapper.close()


def test_what_is_wrapped_unwraps_everywhere(place: Place) -> None:
    one, other = place.again(), place.again()
    wrapped = one.wrap(KEY, CONTEXT)
    assert one.unwrap(wrapped, CONTEXT) == other.unwrap(wrapped, CONTEXT) == KEY
    assert one.version == other.version
    assert KEY not in wrapped
    assert one.wrap(KEY, CONTEXT) != wrapped, "each has a nonce of its own"


def test_another_context_does_not_open(place: Place) -> None:
    wrapper = place.again()
    wrapped = wrapper.wrap(KEY, CONTEXT)
    for other in (b"scope 1, epoch 1", CONTEXT + b"\0", CONTEXT[:-1]):
        with pytest.raises(Corrupt):
            wrapper.unwrap(wrapped, other)
    assert wrapper.unwrap(wrapped, CONTEXT) == KEY


def test_an_altered_one_does_not_open(place: Place) -> None:
    wrapper = place.again()
    wrapped = wrapper.wrap(KEY, CONTEXT)
    for at in (0, 1, 7, 9, 12, 20, len(wrapped) // 2, len(wrapped) - 4):
        altered = bytearray(wrapped)
        altered[at] ^= 2
        with pytest.raises(Corrupt):
            wrapper.unwrap(bytes(altered), CONTEXT)
    for cut in (b"", wrapped[:-4], wrapped[:10], wrapped + b"\0" * 4, b"\xff" * 80):
        with pytest.raises(Corrupt):
            wrapper.unwrap(cut, CONTEXT)


def test_rotation_changes_the_version_and_loses_nothing(place: Place) -> None:
    wrapper, other = place.again(), place.again()
    before, wrapped = wrapper.version, wrapper.wrap(KEY, CONTEXT)
    after = wrapper.rotate()
    assert after == wrapper.version != before
    assert wrapper.unwrap(wrapped, CONTEXT) == KEY
    new = wrapper.wrap(KEY, CONTEXT)
    assert other.unwrap(new, CONTEXT) == KEY, "a running gateway sees the rotation"
    assert place.again().version == after


def test_a_retired_version_opens_no_more(place: Place) -> None:
    wrapper, other = place.again(), place.again()
    old = wrapper.wrap(KEY, CONTEXT)
    wrapper.rotate()
    wrapper.rotate()
    new = wrapper.wrap(KEY, CONTEXT)
    assert wrapper.retire() == 2
    assert wrapper.retire() == 0
    for one in (wrapper, other, place.again()):
        assert one.unwrap(new, CONTEXT) == KEY
        with pytest.raises(Corrupt):
            one.unwrap(old, CONTEXT)


def test_out_of_reach_is_unavailable_until_it_is_back(place: Place) -> None:
    wrapper = place.again()
    wrapped = wrapper.wrap(KEY, CONTEXT)
    place.lose()
    try:
        for call in (
            lambda: wrapper.wrap(KEY, CONTEXT),
            lambda: wrapper.unwrap(wrapped, CONTEXT),
            wrapper.rotate,
        ):
            with pytest.raises(Unavailable):
                call()
    finally:
        place.find()
    assert wrapper.unwrap(wrapped, CONTEXT) == KEY


def test_threads_share_one(place: Place) -> None:
    wrapper = place.again()
    contexts = [str(number).encode() for number in range(24)]
    with ThreadPoolExecutor(6) as pool:
        wrapped = list(pool.map(lambda context: wrapper.wrap(KEY, context), contexts))
        opened = list(pool.map(wrapper.unwrap, wrapped, contexts))
    assert opened == [KEY] * 24


def test_nothing_secret_shows(place: Place) -> None:
    wrapper = place.again()
    wrapped = wrapper.wrap(KEY, CONTEXT)
    with pytest.raises(Corrupt) as refusal:
        wrapper.unwrap(wrapped, b"other")
    for text in (repr(wrapper), str(refusal.value), repr(refusal.value.__cause__)):
        assert KEY.hex() not in text
        assert TOKEN not in text
