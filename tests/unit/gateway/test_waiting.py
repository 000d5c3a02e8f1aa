"""Waiting rooms: how long is waited in several of them, and what they say of themselves."""

from __future__ import annotations

import asyncio

import pytest

from scopekv.core.scopes import Principal
from scopekv.gateway.settings import RoutingSettings
from scopekv.gateway.waiting import NoPlace, WaitingRoom

ALICE = Principal("acme", "alice", "org_acme", "usr_alice")


async def alice() -> Principal:
    return ALICE


async def test_who_has_waited_elsewhere_waits_so_much_less() -> None:
    room = WaitingRoom(lambda: 1, RoutingSettings(wait_seconds_max=3600), "the provider")
    async with asyncio.timeout(20), room.place(alice, 7.0) as waited:
        assert waited == 7.0, "a place at once adds nothing"
        assert not room.free
        with pytest.raises(NoPlace):
            async with room.place(alice, 3600.0):
                pass
        with pytest.raises(NoPlace):
            async with room.place(alice, 3599.9):
                pass
        assert (room.taken, room.waiting) == (1, 0)
    assert room.free


async def test_who_leaves_in_the_moment_of_its_turn_gives_the_place_back() -> None:
    room = WaitingRoom(lambda: 1, RoutingSettings(), "the engines")
    assert room.take()
    waits = asyncio.create_task(room.wait("acme", 0.0))
    await asyncio.sleep(0)
    room.leave()
    assert room.taken == 1, "its turn came"
    waits.cancel()
    await asyncio.gather(waits, return_exceptions=True)
    assert (room.taken, room.waiting) == (0, 0)
