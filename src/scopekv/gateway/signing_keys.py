"""An identity provider's keys, kept, renewed and given up.

Fetched by one task at a time, off the event loop. Nobody who sends tokens decides how often: an
unknown key id asks again no sooner than `PAUSE_SECONDS` after the last time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from scopekv.core.identity import IdentityReason, TokenRefused
from scopekv.errors import ConfigError, Unavailable
from scopekv.ports import SigningKey, TokenVerifier

PAUSE_SECONDS = 10.0
log = logging.getLogger("scopekv.identity")


@dataclass(frozen=True, slots=True)
class KeyAges:
    """`refresh_seconds`: older keys are fetched anew, while they go on.

    `keys_seconds_max`: older keys verify nothing, though the provider be out of reach.
    """

    refresh_seconds: float = 300.0
    keys_seconds_max: float = 3600.0

    def __post_init__(self) -> None:
        if not PAUSE_SECONDS <= self.refresh_seconds <= self.keys_seconds_max <= 7 * 24 * 3600:
            raise ConfigError(
                f"[oidc] refresh_seconds is from {PAUSE_SECONDS:.0f}, and keys_seconds_max from "
                "refresh_seconds, to 604800"
            )


class SigningKeys:
    """The keys of one provider. `generation` rises whenever they are replaced, as a whole."""

    def __init__(
        self,
        verifier: TokenVerifier,
        ages: KeyAges,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verifier, self._ages, self._monotonic = verifier, ages, monotonic
        self._keys: Mapping[tuple[str, str], SigningKey] = {}
        self._fetched_at = float("-inf")
        self._began_at = float("-inf")
        self._task: asyncio.Task[None] | None = None
        self._trouble = ""
        self.generation = 0

    async def key(self, kid: str, algorithm: str) -> SigningKey:
        """Return the key of that id. Raises `TokenRefused`, or `Unavailable` as `fresh` does."""
        await self.fresh()
        if (kid, algorithm) not in self._keys:
            await self._renewed()
        found = self._keys.get((kid, algorithm))
        if found is None:
            raise TokenRefused(IdentityReason.UNKNOWN_KEY)
        return found

    async def fresh(self) -> None:
        """See to it that the keys are young enough to count. Raises `Unavailable`.

        Waits for the provider only where there is no key that counts.
        """
        if self._age() < self._ages.refresh_seconds:
            return
        self.renew()
        if self._age() >= self._ages.keys_seconds_max:
            await self._renewed()
        if self._age() >= self._ages.keys_seconds_max:
            raise Unavailable("the identity provider's keys are missing or too old; see the log")

    def renew(self) -> asyncio.Task[None] | None:
        """Fetch in the background; None where the last time was a moment ago."""
        if self._task is None or self._task.done():
            now = self._monotonic()
            if now - self._began_at < PAUSE_SECONDS:
                return None
            self._began_at = now
            self._task = asyncio.create_task(self._fetch(), name="signing keys")
        return self._task

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _age(self) -> float:
        return self._monotonic() - self._fetched_at

    async def _renewed(self) -> None:
        task = self.renew()
        if task is not None:
            await asyncio.shield(task)  # one caller that goes away does not end it for others

    async def _fetch(self) -> None:
        """Replace the keys as a whole: what is no longer listed counts no more."""
        began = self._monotonic()
        try:
            keys = await asyncio.to_thread(self._verifier.fetch)
        except (Unavailable, ConfigError) as error:
            if str(error) != self._trouble:  # once a change, not at every attempt
                log.error("signing keys were not fetched: %s", error)
            self._trouble = str(error)
            return
        if not keys:
            log.error("the identity provider lists no key of the allowed algorithms")
        self._trouble = ""
        self._keys = keys
        self._fetched_at = began
        self.generation += 1
