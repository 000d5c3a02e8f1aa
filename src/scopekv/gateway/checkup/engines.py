"""Checks of engines: reachable, with the plugin, of one mind with this gateway and each other."""

from __future__ import annotations

import asyncio
import email.utils
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scopekv.core.tickets import SKEW_MS
from scopekv.errors import ScopeKVError
from scopekv.gateway.checkup.finding import Finding, error, ok, warning
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.instances import Instance, Isolation

_SECONDS = 15.0
_LONG_SECONDS = 120.0
_START = "VLLM_PLUGINS=scopekv SCOPEKV_TICKET_KEYS=ticket-keys.json vllm serve MODEL"
_TIER_DO = (
    "check that the store is up, has room, and is reachable from the engine, and that the engine's "
    "SCOPEKV_BROKER_URL and SCOPEKV_BROKER_SECRET are this gateway's; it is tried again by itself"
)
_PROBE = {"prompt": "a", "max_tokens": 1, "temperature": 0}


async def examine(
    fleet: Fleet, ticket_keys: Path, now: Callable[[], float] = time.time
) -> list[Finding]:
    """Look at every instance once, and at what they have in common. Sends one-token requests."""
    found: list[Finding] = []
    for instance in fleet.instances:
        found += await _one(fleet, instance, ticket_keys, now)
    found += _together([i for i in fleet.instances if i.isolation is Isolation.SCOPED])
    return found


async def _one(
    fleet: Fleet, instance: Instance, ticket_keys: Path, now: Callable[[], float]
) -> list[Finding]:
    name = instance.address.name
    reached = await _reached(instance)
    if reached is not None:
        return [reached]
    await fleet.look(instance)
    if not instance.up:
        do = "see its log; `curl URL/v1/models` must list its model"
        return [error("engine", name, instance.reason, do)]
    if instance.isolation is not Isolation.SCOPED:
        return [_plugin(instance, ticket_keys)]
    found = [ok("plugin", name, f"version {instance.status['plugin']}, self-check ok")]
    found.append(_template(instance))
    found.append(_hashing(instance))
    found += [await _clock(instance, now), await _counts(instance)]
    found += await _tiers(instance)
    return found


async def _reached(instance: Instance) -> Finding | None:
    """None where the engine answers this gateway's key."""
    name, url = instance.address.name, instance.address.url
    try:
        answer = await instance.control.request(
            "GET", "/v1/models", instance.headers(), b"", timeout_seconds=_SECONDS
        )
    except ScopeKVError as problem:
        do = "start it, or correct `url`; a first start takes a minute"
        return error("engine", name, str(problem), do)
    async with answer:
        if answer.status in (401, 403):
            return error(
                "engine",
                name,
                f"{url} refuses this gateway's api_key",
                "set api_key to what vLLM got as --api-key; url must be the engine's own",
            )
        if answer.status != 200:
            return error(
                "engine",
                name,
                f"{url}/v1/models answers {answer.status}: no vLLM seems to be there",
                "correct `url`: the server's root, with or without /v1",
            )
    return None


def _plugin(instance: Instance, ticket_keys: Path) -> Finding:
    """Why it shares whole prompts only, and what to do."""
    name, reason = instance.address.name, instance.reason
    if "did not answer" in reason:
        do = f"pip install scopekv beside vLLM, then start it with: {_START}"
    elif "TICKET_KEYS" in reason:
        do = f"copy {ticket_keys} to the engine, where its SCOPEKV_TICKET_KEYS points"
    elif "INSTANCE_GROUP" in reason:
        do = "give both the same: instance_group in scopekv.toml, SCOPEKV_INSTANCE_GROUP there"
    elif "format" in reason:
        do = "bring gateway and engines to one version of scopekv"
    else:
        do = "see the engine's log for the plugin's own words"
    return error("plugin", name, f"whole prompts only: {reason}", do)


def _template(instance: Instance) -> Finding:
    name, reason = instance.address.name, instance.reason
    if reason == "tokens equal the engine's":
        return ok("template", name, reason)
    do = "use the model's own chat template, with content format string, on the engine"
    return warning("template", name, reason, do)


def _hashing(instance: Instance) -> Finding:
    name, algorithm = instance.address.name, str(instance.status["hash_algorithm"])
    if algorithm != "sha256_cbor":
        return warning(
            "hashing",
            name,
            f"blocks are hashed by {algorithm}, which no other process can reproduce: routing goes "
            "by load and by what this gateway sent",
            "start vLLM with --prefix-caching-hash-algo sha256_cbor",
        )
    return ok("hashing", name, f"{algorithm}, blocks of {instance.block_size} tokens")


async def _clock(instance: Instance, now: Callable[[], float]) -> Finding:
    """By the Date header, which is whole seconds."""
    name = instance.address.name
    answer = await instance.control.request(
        "GET", "/health", instance.headers(), b"", timeout_seconds=_SECONDS
    )
    async with answer:
        date = answer.header(b"date")
    if date is None:
        return ok("clock", name, "its answers are not dated")
    there = email.utils.parsedate_to_datetime(date.decode("latin-1")).timestamp()
    apart = there - now()
    if abs(apart) > SKEW_MS / 1000 + 1:
        return error(
            "clock",
            name,
            f"its clock is {apart:+.0f} seconds from this one: tickets are early or late there",
            "run NTP on both machines",
        )
    return ok("clock", name, "within a second or so of this one")


async def _counts(instance: Instance) -> Finding:
    """Whether usage tells cached tokens."""
    name = instance.address.name
    try:
        answer: Any = await instance.ask(
            "POST",
            "/v1/completions",
            {"model": instance.base_model, **_PROBE},
            seconds=_LONG_SECONDS,
        )
    except ScopeKVError as problem:
        return error("answers", name, str(problem), "see the engine's log: it completes nothing")
    details = (answer.get("usage") or {}).get("prompt_tokens_details")
    if not details or details.get("cached_tokens") is None:
        return warning(
            "answers",
            name,
            "it does not say how many tokens came from the cache",
            "start vLLM with --enable-prompt-tokens-details",
        )
    return ok("answers", name, "it completes, and counts cached tokens")


async def _tiers(instance: Instance) -> list[Finding]:
    """What the engine's tiers say of themselves."""
    name = instance.address.name
    try:
        told: Any = await instance.ask("GET", "/v1/scopekv/tiers", seconds=_SECONDS)
    except ScopeKVError:
        return [ok("tiers", name, "none beyond the engine's memory")]
    tiers = told.get("tiers") if isinstance(told, dict) else None
    found = []
    for tier, counters in (tiers or {}).items():
        for what in ("suspended", "writes_suspended"):
            if counters.get(what):
                words = f"{tier}: {what.replace('_', ' ')}, after failures"
                found.append(warning("tiers", name, words, _TIER_DO))
    return found or [ok("tiers", name, f"{', '.join(tiers or ()) or 'none'}: none suspended")]


def _together(scoped: Sequence[Instance]) -> Iterator[Finding]:
    """What several instances must have in common, and what routing among them needs."""
    if len(scoped) < 2:
        return
    by_model: dict[str, set[str]] = {}
    for instance in scoped:
        mark = instance.fingerprint.hex() if instance.fingerprint is not None else ""
        by_model.setdefault(instance.base_model, set()).add(mark)
    for model, marks in by_model.items():
        if len(marks) > 1:
            yield warning(
                "agreement",
                model,
                f"{len(marks)} kinds of engines serve it: other revision, dtype, block size or "
                "layout, so that no tier or prefix is shared between them",
                "start all of them with the same vLLM version and the same model arguments",
            )
    for instance in scoped:
        if not instance.status.get("events"):
            yield warning(
                "events",
                instance.address.name,
                "it publishes no KV events: this gateway knows only what it sent there itself",
                "see docs/routing.md for --kv-events-config",
            )


async def close(fleet: Fleet) -> None:
    """End the connections that `examine` opened."""
    await asyncio.gather(*(instance.close() for instance in fleet.instances))
