"""A gateway in front of simulated providers, without engines: what tests of upstreams start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scopekv.gateway.settings import GatewaySettings, RoutingSettings
from scopekv.gateway.upstreams.settings import Credential, UpstreamKind, UpstreamSettings
from scopekv.simulate.client import PlainClient
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.providers import SimulatedProvider
from tests.http.official_clients import anthropic_client, openai_client

if TYPE_CHECKING:
    import anthropic
    import openai

CLAUDE, GPT, GPT_NEW = "claude-simulated", "gpt-simulated", "gpt-simulated-with-breakpoints"
SHARED, OWN = "key-of-the-shared-workspace", "key-of-initechs-workspace"
WORKSPACES = {SHARED: "shared", OWN: "initech"}


class Clock:
    """A time that tests move."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass(slots=True, repr=False)
class ProvidersStage:
    """acme (alice, ann, desk: a service) and globex (bob) share a workspace; initech (ian) not."""

    deployment: Deployment
    provider: SimulatedProvider
    clock: Clock
    keys: dict[str, str]

    def openai(self, name: str) -> openai.AsyncOpenAI:
        return openai_client(self.deployment.url, self.keys[name])

    def anthropic(self, name: str) -> anthropic.AsyncAnthropic:
        return anthropic_client(self.deployment.url, self.keys[name])

    async def chat(self, name: str, messages: Sequence[Any], **more: Any) -> Any:
        """One chat completion by OpenAI's own client."""
        async with self.openai(name) as client:
            return await client.chat.completions.create(
                messages=list(messages), **({"model": GPT} | more)
            )

    async def message(self, name: str, system: Any, *contents: Any, **more: Any) -> Any:
        """One message by Anthropic's own client. `contents`: of turns, the user's first."""
        roles = ("user", "assistant") * len(contents)
        messages: Any = [
            {"role": role, "content": content}
            for role, content in zip(roles, contents, strict=False)
        ]
        async with self.anthropic(name) as client:
            return await client.messages.create(
                model=CLAUDE,
                max_tokens=more.pop("max_tokens", 8),
                system=system,
                messages=messages,
                **more,
            )

    def plain(self) -> PlainClient:
        return PlainClient(self.deployment.url, GPT)


@asynccontextmanager
async def providers_stage(
    folder: Path,
    first: Sequence[UpstreamSettings] = (),
    routing: RoutingSettings | None = None,
    **more: Any,
) -> AsyncIterator[ProvidersStage]:
    """`more`: settings of both upstreams. `first`: others, which stand before them."""
    clock = Clock()
    credentials = (Credential(SHARED), Credential(OWN, ("initech",)))
    async with SimulatedProvider(WORKSPACES, clock=clock, by_breakpoint={GPT_NEW}) as provider:
        upstreams = (
            *first,
            UpstreamSettings(
                *("claude", UpstreamKind.ANTHROPIC, provider.url, (CLAUDE,), credentials), **more
            ),
            UpstreamSettings(
                *("gpt", UpstreamKind.OPENAI, provider.url, (GPT,), credentials), **more
            ),
            UpstreamSettings(
                *("gpt-new", UpstreamKind.OPENAI, provider.url, (GPT_NEW,), credentials),
                breakpoints=True,
            ),
        )
        settings = GatewaySettings(
            (),
            port=0,
            stop_seconds_max=0.5,
            upstreams=upstreams,
            routing=routing or RoutingSettings(),
        )
        deployment = await Deployment(folder, settings).start([])
        account = deployment.account
        keys = {
            "alice": account("acme", "alice"),
            "ann": account("acme", "ann"),
            "desk": account("acme", "desk", service=True),
            "bob": account("globex", "bob"),
            "ian": account("initech", "ian"),
            "root": account("hq", "root", roles=["operator"]),
        }
        try:
            yield ProvidersStage(deployment, provider, clock, keys)
        finally:
            await deployment.stop()
