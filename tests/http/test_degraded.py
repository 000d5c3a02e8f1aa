"""Parts missing or broken: isolation holds, /readyz says so, permission faults refuse (L3)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scopekv.adapters.ed25519 import TicketSigner, write_public_keys
from scopekv.gateway.administration import LOCAL_OPERATOR
from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.isolation import assert_isolated
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

Accounts = dict[str, str]


def accounts_of(stage: Stage) -> Accounts:
    account = stage.deployment.account
    return {"alice": account("acme", "alice"), "ann": account("acme", "ann"),
            "bob": account("globex", "bob")}  # fmt: skip


async def ready_row(stage: Stage) -> dict[str, Any]:
    answer = await stage.client.send("GET", "/readyz", key=None)
    row: dict[str, Any] = answer.json["instances"][0]
    return row


def break_self_check(stage: Stage) -> None:
    assert stage.engine.plugin is not None
    stage.engine.plugin.self_check = "blocks of requests without a ticket can meet"


def other_group(stage: Stage) -> None:
    assert stage.engine.plugin is not None
    stage.engine.plugin.instance_group = "elsewhere"


def remove_plugin(stage: Stage) -> None:
    stage.engine.plugin = None


def other_keys(stage: Stage) -> None:
    write_public_keys(stage.deployment.keys_path, [TicketSigner(bytes(32)).public_key])
    assert stage.engine.plugin is not None
    stage.engine.plugin.keys = type(stage.engine.plugin.keys)(stage.deployment.keys_path)


@pytest.mark.parametrize(
    ("spoil", "reason", "reuses"),
    [
        (remove_plugin, "plugin did not answer", True),
        (break_self_check, "self-check failed: blocks of requests", True),
        (other_group, "SCOPEKV_INSTANCE_GROUP", False),
        (other_keys, "SCOPEKV_TICKET_KEYS", False),
    ],
)
async def test_without_a_good_plugin_whole_prompts_are_isolated_and_no_ticket_is_sent(
    tmp_path: Path, model: SimulatedModel, spoil: Callable[[Stage], None], reason: str, reuses: bool
) -> None:
    """`reuses`: not where a plugin at work takes the missing ticket for a stranger's request."""
    stage = Stage(tmp_path, model)
    keys = accounts_of(stage)
    document = text_of("public", 60)
    stage.deployment.publish("public", "public", document)
    spoil(stage)
    async with stage:
        row = await ready_row(stage)
        assert row["isolation"] == "whole_prompt"
        assert reason in row["reason"]
        assert row["pinned"] == 0

        async def ask(name: str) -> int:
            return (await stage.client.chat(keys[name], document, "question")).cached

        if reuses:
            await assert_isolated(ask, owner="alice", others=["ann", "bob"])
        else:
            assert [await ask(name) for name in ("alice", "ann", "bob", "alice")] == [0] * 4
        calls = stage.engine.seen.calls
        assert all(call.ticket is None for call in calls)
        assert len({call.salt for call in calls}) == 3
        assert all(len(call.salt) == 64 for call in calls)


async def test_a_session_has_its_own_salt(tmp_path: Path, model: SimulatedModel) -> None:
    stage = Stage(tmp_path, model, plugins=(False,))
    keys = accounts_of(stage)
    async with stage:

        async def ask(session: str) -> int:
            headers = [(b"x-scopekv-session", session.encode())]
            prompt = text_of("session", 60)
            return (await stage.client.chat(keys["alice"], prompt, headers=headers)).cached

        await assert_isolated(ask, owner="one", others=["two", ""])


async def test_a_plugin_that_breaks_while_running_gets_no_more_tickets(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    keys = accounts_of(stage)
    async with stage:
        await stage.client.chat(keys["alice"], "hi")
        assert stage.engine.seen.calls[-1].ticket is not None
        break_self_check(stage)
        await stage.look()
        await stage.client.chat(keys["alice"], "hi")
        assert stage.engine.seen.calls[-1].ticket is None
        assert (await ready_row(stage))["isolation"] == "whole_prompt"


async def test_a_template_that_gives_other_tokens_keeps_chats_private(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    keys = accounts_of(stage)
    document = text_of("public", 60)
    stage.deployment.publish("public", "public", document)
    shown = model.template_text.replace("assistant\n", "assistant \n")
    assert shown != model.template_text
    stage.engine.behaviour.template_shown = shown
    async with stage:
        row = await ready_row(stage)
        assert row["isolation"] == "scoped"
        assert "chats stay with their caller" in row["reason"]

        async def ask(name: str) -> int:
            return (await stage.client.chat(keys[name], document, "question")).cached

        await assert_isolated(ask, owner="alice", others=["ann", "bob"])
        prompt = document + text_of("rest", 20)
        plain = [(await stage.client.complete(keys[n], prompt)).cached for n in ("alice", "bob")]
        assert min(plain) > 3 * 32, "completions need no template"


async def test_a_registry_out_of_reach_refuses(tmp_path: Path, model: SimulatedModel) -> None:
    stage = Stage(tmp_path, model)
    keys = accounts_of(stage)
    async with stage:
        assert (await stage.client.chat(keys["alice"], "hi")).status == 200
        file = stage.deployment.registry_file
        file.rename(tmp_path / "elsewhere.db")
        before = len(stage.engine.seen.calls)
        for path in ("/v1/models", "/metrics", "/admin/v1/me"):
            assert (await stage.client.send("GET", path, key=keys["alice"])).status == 503
        answer = await stage.client.chat(keys["alice"], "hi")
        assert (answer.status, answer.error["code"]) == (503, "unavailable")
        assert "registry.db" not in answer.content.decode()
        assert len(stage.engine.seen.calls) == before
        assert (await stage.client.send("GET", "/healthz", key=None)).status == 200
        (tmp_path / "elsewhere.db").rename(file)
        assert (await stage.client.chat(keys["alice"], "hi")).status == 200


async def test_a_rotated_key_reaches_a_running_engine(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """The engine reads the new list when it meets a key it does not know; nothing restarts."""
    stage = Stage(tmp_path, model)
    keys = accounts_of(stage)
    path = stage.deployment.keys_path
    wanted = path.read_text()
    other_keys(stage)
    async with stage:
        assert "SCOPEKV_TICKET_KEYS" in (await ready_row(stage))["reason"]
        path.write_text(wanted)
        await stage.look()
        assert (await ready_row(stage))["isolation"] == "scoped"
        await stage.client.chat(keys["alice"], "hi")
        assert stage.engine.seen.calls[-1].ticket is not None


async def test_a_public_document_that_could_not_be_warmed_is_not_called_pinned(
    tmp_path: Path, model: SimulatedModel
) -> None:
    stage = Stage(tmp_path, model)
    document = text_of("public", 60)
    stage.deployment.publish("public", "public", document)
    stage.engine.behaviour = Behaviour(refuses=500)
    async with stage:
        assert stage.engine.plugin is not None
        assert (await ready_row(stage))["pinned"] == 0
        stage.engine.behaviour = Behaviour()
        await stage.look()
        assert (await ready_row(stage))["pinned"] == 3
        assert sum(stage.engine.plugin.status()["pinned"].values()) > 9


async def test_a_restarted_engine_is_warmed_again(tmp_path: Path, model: SimulatedModel) -> None:
    stage = Stage(tmp_path, model)
    keys = accounts_of(stage)
    document = text_of("public", 60)
    stage.deployment.publish("public", "public", document)
    async with stage:
        assert (await ready_row(stage))["pinned"] == 3
        await stage.engine.restart()
        await stage.look()
        assert (await ready_row(stage))["pinned"] == 3
        assert (await stage.client.chat(keys["bob"], document, "q")).cached > 3 * 32


async def test_a_raised_epoch_counts_without_the_plugin_too(
    tmp_path: Path, model: SimulatedModel
) -> None:
    """L6: an engine without the plugin knows no epochs, so the salt must."""
    stage = Stage(tmp_path, model, plugins=(False,))
    keys = accounts_of(stage)
    prompt = text_of("old", 60)
    async with stage:
        for expected in (False, True):
            assert bool((await stage.client.chat(keys["bob"], prompt)).cached) is expected
        stage.deployment.administration.epochs.bump(LOCAL_OPERATOR, "user:globex/bob")
        assert (await stage.client.chat(keys["bob"], prompt)).cached == 0
        assert (await stage.client.chat(keys["bob"], prompt)).cached > 0
