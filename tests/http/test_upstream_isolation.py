"""What customers of one provider's workspace can find of each other: public documents, no more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scopekv.core.scopes import Scope
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.stage import text_of
from tests.http.official_clients import openai_client
from tests.http.providers_stage import GPT, GPT_NEW, SHARED, providers_stage

if TYPE_CHECKING:
    from tests.http.providers_stage import ProvidersStage

pytestmark = pytest.mark.asyncio(loop_scope="module")
CACHED = {"type": "ephemeral"}


async def openai_cached(
    stage: ProvidersStage, name: str, system: str, *contents: str, **more: Any
) -> int:
    """Cached tokens of a chat, as the provider counts them."""
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": "user", "content": content} for content in contents]
    answer = await stage.chat(name, messages, **more)
    return int(answer.usage.prompt_tokens_details.cached_tokens)


async def anthropic_cached(
    stage: ProvidersStage, name: str, system: str, *contents: str, **more: Any
) -> int:
    """Cached tokens of a message whose sender asks for everything to be kept."""
    answer = await stage.message(
        name, system or "be brief", *contents, cache_control=CACHED, **more
    )
    return int(answer.usage.cache_read_input_tokens)


async def breakpoint_cached(
    stage: ProvidersStage, name: str, system: str, *contents: str, **more: Any
) -> int:
    """The same of a model that caches up to breakpoints, as GPT-5.6 does."""
    return await openai_cached(stage, name, system, *contents, model=GPT_NEW, **more)


ALL = pytest.mark.parametrize("cached", [openai_cached, breakpoint_cached, anthropic_cached])
APIS = pytest.mark.parametrize("cached", [openai_cached, anthropic_cached])


@ALL
async def test_l1_l10_no_private_text_is_shared_through_a_workspaces_cache(
    providers: ProvidersStage, cached: Any
) -> None:
    """Two customers of one workspace, the same private text: no cached tokens across."""
    text = text_of(f"private {cached.__name__}", 1500)
    assert await cached(providers, "alice", "", text) == 0
    assert await cached(providers, "alice", "", text) >= 1024  # the control: her own is read
    assert await cached(providers, "bob", "", text) == 0
    assert await cached(providers, "ann", "", text) == 0  # nor within one organisation
    assert await cached(providers, "ian", "", text) == 0  # in a workspace of his own


async def test_without_the_gateway_a_workspace_shares_everything(
    providers: ProvidersStage,
) -> None:
    """The control: the provider itself asks for nothing but the key and the same words."""
    text = text_of("direct", 1500)
    found = []
    for _ in range(2):
        async with openai_client(providers.provider.url, SHARED) as client:
            answer = await client.chat.completions.create(
                model=GPT, messages=[{"role": "user", "content": text}]
            )
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        found.append(answer.usage.prompt_tokens_details.cached_tokens)
    assert found[0] == 0
    assert (found[1] or 0) >= 1024


@ALL
async def test_a_public_document_is_cached_across_customers(
    providers: ProvidersStage, cached: Any
) -> None:
    public, own = (text_of(f"{kind} {cached.__name__}", 1500) for kind in ("public", "own"))
    providers.deployment.publish(f"public-{cached.__name__}", "public", public)
    system = f"{public}\n\n{own}"
    assert await cached(providers, "alice", system, "hi") == 0
    whole = await cached(providers, "alice", system, "hi")
    others = await cached(providers, "bob", system, "hi")
    assert whole > 2900 > 2000 > others >= 1400  # the document, and nothing of the text after it


@ALL
async def test_an_organisations_instructions_are_shared_within_it_alone(
    providers: ProvidersStage, cached: Any
) -> None:
    system = text_of(f"org {cached.__name__}", 1500)
    assert await cached(providers, "alice", system, "hi") == 0
    assert await cached(providers, "ann", system, "hello") >= 1024
    assert await cached(providers, "bob", system, "hi") == 0


@APIS
async def test_tools_and_answer_schemas_are_an_organisations(
    providers: ProvidersStage, cached: Any
) -> None:
    """They stand before all text, in no order that a provider promises."""
    words = text_of(f"tool {cached.__name__}", 1500)
    schema = {"type": "object", "properties": {"word": {"type": "string", "description": words}}}
    if cached is openai_cached:
        function = {"name": "look_up", "description": "d", "parameters": schema}
        bodies: list[Any] = [
            {"tools": [{"type": "function", "function": function}]},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "s", "schema": schema},
                }
            },
        ]
    else:
        bodies = [{"tools": [{"name": "look_up", "description": "d", "input_schema": schema}]}]
    for more in bodies:
        assert await cached(providers, "alice", "", "hi", **more) == 0
        assert await cached(providers, "ann", "", "hello", **more) >= 1024
        assert await cached(providers, "bob", "", "hi", **more) == 0


@ALL
async def test_nobody_reaches_a_scope_by_writing_its_marker(
    providers: ProvidersStage, cached: Any
) -> None:
    text = text_of(f"marker {cached.__name__}", 1500)
    await cached(providers, "alice", "", text)
    last = providers.provider.last["messages"][-1]["content"]
    sent = last if isinstance(last, str) else last[0]["text"]
    marker = sent[: sent.index("\n") + 1]
    assert marker.startswith("[s:")
    assert len(marker) < 24
    assert await cached(providers, "bob", "", marker + text) == 0
    assert await cached(providers, "alice", "", text) >= 1024


@ALL
async def test_end_users_and_sessions_are_apart(providers: ProvidersStage, cached: Any) -> None:
    text = text_of(f"sessions {cached.__name__}", 1500)
    for headers in ({"X-ScopeKV-User": "u1"}, {"X-ScopeKV-Session": "s1"}, {}):
        assert await cached(providers, "desk", "", text, extra_headers=headers) == 0
        assert await cached(providers, "desk", "", text, extra_headers=headers) >= 1024


@APIS
async def test_what_was_revoked_is_never_asked_for_again(
    providers: ProvidersStage, cached: Any
) -> None:
    """The provider keeps it until its time is over; no prompt of ours begins with it (L6)."""
    public, own = (text_of(f"{k} revoked {cached.__name__}", 1500) for k in ("public", "own"))
    uid = providers.deployment.publish(f"revoked-{cached.__name__}", "public", public)
    for name in ("alice", "bob"):
        await cached(providers, name, public, own)
    assert await cached(providers, "bob", public, own) > 2800
    revocations = providers.deployment.administration.revocations
    revocations.user(LOCAL_OPERATOR, "globex", "bob")
    assert 1400 <= await cached(providers, "bob", public, own) < 2000
    revocations.document(LOCAL_OPERATOR, uid)
    assert await cached(providers, "bob", public, own) == 0
    assert await cached(providers, "alice", public, "hi") >= 1400  # anew, for all again
    providers.deployment.administration.documents.withdraw(LOCAL_OPERATOR, uid)
    assert await cached(providers, "bob", public, "hi") == 0


async def test_a_document_for_an_organisation_is_no_other_ones(providers: ProvidersStage) -> None:
    text = text_of("for acme", 1500)
    providers.deployment.publish("for-acme", "org:acme", text)
    for cached in (openai_cached, anthropic_cached):
        assert await cached(providers, "alice", text, "hi") == 0
        assert await cached(providers, "ann", text, "hello") >= 1024
        assert await cached(providers, "bob", text, "hi") == 0


async def test_where_nothing_is_to_be_shared_public_documents_are_not(tmp_path: Path) -> None:
    async with providers_stage(tmp_path, share_public=False) as stage:
        text = text_of("not even public", 1500)
        stage.deployment.publish("not-even-public", "public", text)
        assert await openai_cached(stage, "alice", text, "hi") == 0
        assert await openai_cached(stage, "alice", text, "hi") >= 1024


async def test_i14_a_change_while_a_request_is_prepared_is_sent_to_nobody(
    providers: ProvidersStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what a member of before sends would be found by those of after."""
    text, administration = text_of("prepared", 60), providers.deployment.administration
    providers.deployment.group("acme", "eng", "alice", "ann")
    providers.deployment.publish("prepared", "group:acme/eng", text)
    access = providers.deployment.gateway.access
    original = access.epoch

    async def late(scope: Scope) -> int:
        """The change falls between reading the caller and reading the epochs."""
        monkeypatch.setattr(access, "epoch", original)
        administration.groups.set_member(LOCAL_OPERATOR, "acme", "eng", "ann", inside=False)
        await access.refresh()
        return await original(scope)

    messages = [{"role": "user", "content": text}]
    monkeypatch.setattr(access, "epoch", late)
    await providers.chat("ann", messages)
    sent = providers.provider.last["messages"]
    await providers.chat("ann", messages)
    assert providers.provider.last["messages"] == sent, "as one who is in no group"
    await providers.chat("alice", messages)
    assert providers.provider.last["messages"] != sent
