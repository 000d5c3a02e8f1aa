"""The life of an identity provider's keys: renewed, rotated, and given up when they are old."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from scopekv.adapters.oidc import OidcVerifier, ProviderSettings
from scopekv.core.identity import TokenRefused
from scopekv.errors import ConfigError, Unavailable
from scopekv.gateway.signing_keys import PAUSE_SECONDS, KeyAges, SigningKeys
from tests.http.identity_provider import IdentityProvider, private_key

pytest.importorskip("jwt", reason="needs the oidc extra")
REFRESH, MAX = 300.0, 3600.0


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running


def made(provider: IdentityProvider, clock: Callable[[], float]) -> SigningKeys:
    url = f"{provider.issuer}/keys"
    verifier = OidcVerifier(ProviderSettings(provider.issuer, url, timeout_seconds=1))
    return SigningKeys(verifier, KeyAges(REFRESH, MAX), clock)


async def settled(keys: SigningKeys) -> None:
    """Until a fetch in the background is done, if one is under way."""
    task = keys.renew()
    if task is not None:
        await task


async def test_many_callers_make_one_call(provider: IdentityProvider) -> None:
    keys = made(provider, Clock())
    await asyncio.gather(*(keys.key("one", "RS256") for _ in range(50)))
    assert provider.calls == ["/keys"]


async def test_rotation_brings_new_keys_and_drops_old_ones(provider: IdentityProvider) -> None:
    clock = Clock()
    keys = made(provider, clock)
    await keys.key("one", "RS256")
    provider.keys = {"new": private_key("rsa", 1)}
    clock.now += PAUSE_SECONDS
    await keys.key("new", "RS256")
    assert keys.generation == 2
    with pytest.raises(TokenRefused, match="unknown_key"):
        await keys.key("one", "RS256")
    provider.keys = {}
    clock.now += REFRESH
    await keys.key("new", "RS256")  # goes on while it is fetched anew
    await settled(keys)
    with pytest.raises(TokenRefused, match="unknown_key"):
        await keys.key("new", "RS256")


async def test_unknown_ids_do_not_make_calls(provider: IdentityProvider) -> None:
    clock = Clock()
    keys = made(provider, clock)
    await keys.key("one", "RS256")
    for number in range(100):
        with pytest.raises(TokenRefused):
            await keys.key(f"made-up-{number}", "RS256")
    assert len(provider.calls) == 1
    clock.now += PAUSE_SECONDS
    for number in range(100):
        with pytest.raises(TokenRefused):
            await keys.key(f"made-up-{number}", "RS256")
    assert len(provider.calls) == 2


async def test_known_keys_go_on_while_the_provider_is_out_of_reach_but_not_for_ever(
    provider: IdentityProvider, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    keys = made(provider, clock)
    await keys.key("one", "RS256")
    provider.status = 503
    for _ in range(int(MAX / REFRESH) - 1):
        clock.now += REFRESH
        await keys.key("one", "RS256")
        await settled(keys)
    assert caplog.text.count("signing keys were not fetched") == 1
    clock.now += REFRESH
    for _ in range(3):
        with pytest.raises(Unavailable, match="missing or too old"):
            await keys.fresh()
    provider.status = 200
    clock.now += PAUSE_SECONDS
    await keys.key("one", "RS256")
    assert keys.generation == 2


async def test_a_silent_provider_does_not_hold_those_whose_keys_are_known(
    provider: IdentityProvider,
) -> None:
    clock = Clock()
    keys = made(provider, clock)
    await keys.key("one", "RS256")
    provider.go_on.clear()
    clock.now += REFRESH
    await keys.key("one", "RS256")  # returns, or the test times out on the provider's 20 s
    assert keys.generation == 1
    provider.go_on.set()
    await keys.stop()


@pytest.mark.parametrize("ages", [(1.0, 10.0), (300.0, 200.0), (300.0, 1e9), (float("nan"), 400.0)])
def test_ages_that_cannot_work(ages: tuple[float, float]) -> None:
    with pytest.raises(ConfigError, match="refresh_seconds"):
        KeyAges(*ages)
