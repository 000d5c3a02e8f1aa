"""One trial on a shared deployment: organisations, accounts and texts that no other trial has."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field
from typing import Any

from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.stage import Stage, text_of


@dataclass(slots=True)
class Trial:
    """Asks as accounts of its own. `seed`: names everything of it."""

    stage: Stage
    seed: str
    names: dict[str, str] = field(default_factory=dict)  # API key -> account
    documents: list[str] = field(default_factory=list)
    _serial: itertools.count[int] = field(default_factory=itertools.count)

    def name(self, word: str) -> str:
        return f"{word}-{self.seed}".replace("_", "-").lower()[:60]

    def org(self, word: str) -> str:
        return self.name(word)

    def text(self, words: int = 60) -> str:
        return text_of(f"{self.seed} {next(self._serial)}", words)

    def account(self, org: str, **more: Any) -> str:
        """An account of its own; returns its key."""
        name = f"user-{next(self._serial)}"
        key = self.stage.deployment.account(self.org(org), name, **more)
        self.names[key] = name
        return key

    @property
    def operator(self) -> str:
        return self.account("hq", roles=["operator"])

    def group(self, *members: str) -> str:
        name = f"group-{next(self._serial)}"
        self.stage.deployment.group(self.org("acme"), name, *(self.names[one] for one in members))
        return name

    def publish(self, audience: str, text: str) -> None:
        name = self.name(f"d{next(self._serial)}")
        self.documents.append(self.stage.deployment.publish(name, audience, text))

    def withdraw(self) -> None:
        """Withdraw what was published last."""
        documents = self.stage.deployment.administration.documents
        documents.withdraw(LOCAL_OPERATOR, self.documents.pop())

    async def ask(self, key: str, *contents: str, **more: Any) -> int:
        """Send a chat; return its cached tokens."""
        return (await self.stage.client.chat(key, *contents, **more)).cached

    async def crosses(self, owner: str, other: str, *, text: str = "", **more: Any) -> bool:
        """Whether `other` reads from the cache what `owner`, who does so too, had computed."""
        text = text or self.text()
        await self.ask(owner, text, **more)
        assert await self.ask(owner, text, **more) > 0, "the owner itself does not hit"
        return await self.ask(other, text, **more) > 0

    async def admin(self, path: str, body: dict[str, Any]) -> None:
        answer = await self.stage.client.send(
            "POST", path, {"wait_seconds": 10} | body, key=self.operator
        )
        assert answer.status == 200, answer.content

    def chains(self) -> set[str]:
        """The folders of the directory tier."""
        root = self.stage.folder / "tier"
        return {path.parent.name for path in root.glob("r*/*")}

    async def stored(self) -> None:
        """Wait until the tiers have written what they were given."""
        tiers = self.stage.engine.tiers
        assert tiers is not None
        while tiers.report()["pending"]:
            await asyncio.sleep(0.01)
