"""Cases I4 and I5: what must differ for blocks to differ, down to the hash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from scopekv.core.blocks import Namespace, block_tag
from scopekv.core.scopes import ScopeId
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.plugin import SimulatedPlugin
from scopekv.simulate.stage import Stage
from scopekv.simulate.tickets import TicketMaker

BLOCK = 32
IDS = list(range(100, 100 + 5 * BLOCK))
SPACE = Namespace(
    model="m",
    revision="1",
    tokenizer="t",
    dtype="float32",
    kv_dtype="auto",
    block_size=BLOCK,
    layout="l",
    hash_algorithm="sha256_cbor",
)


@pytest.mark.parametrize(
    "other",
    [
        {"model": "m2"},
        {"revision": "2"},
        {"tokenizer": "t2"},
        {"dtype": "bfloat16"},
        {"kv_dtype": "fp8"},
        {"block_size": 64},
        {"layout": "l2"},
        {"hash_algorithm": "sha256"},
    ],
    ids=str,
)
async def test_i5_a_ticket_for_other_conditions_reads_nothing(
    tmp_path: Path, model: SimulatedModel, other: dict[str, object]
) -> None:
    """The block keys differ, and an engine refuses a ticket that names the other namespace."""
    scopes = [(ScopeId(bytes(16)), 0)]
    elsewhere = replace(SPACE, **other)  # type: ignore[arg-type]
    assert elsewhere.fingerprint() != SPACE.fingerprint()
    assert block_tag(elsewhere.fingerprint(), scopes) != block_tag(SPACE.fingerprint(), scopes)
    stage = Stage(tmp_path, model)
    plugin = stage.engine.plugin
    assert plugin is not None
    plugin.namespace = SPACE
    ours, theirs = (
        TicketMaker(stage.deployment.world, s.fingerprint()) for s in (SPACE, elsewhere)
    )
    assert cached(plugin, ours) == 0
    assert cached(plugin, theirs) == 0
    assert cached(plugin, ours) == 4 * BLOCK, "the positive control"
    assert plugin.counts["other_namespace"] == 1
    stage.deployment.world.registry.close()


def cached(plugin: SimulatedPlugin, maker: TicketMaker) -> int:
    verdict = plugin.verdict(maker.text(IDS, [4 * BLOCK], ["shared", "mine"]), IDS)
    return plugin.cache.prefill(IDS, plugin.hashes(verdict, IDS, "salt")).cached_tokens


def test_i4_an_adapter_named_like_a_scope_or_salt_is_neither() -> None:
    """Whatever an adapter's digest holds, no tag of it equals one without, or of another scope."""
    fingerprint = SPACE.fingerprint()
    scope = ScopeId(b"0123456789abcdef")
    plain = block_tag(fingerprint, [(scope, 0)])
    names = [bytes(scope), b"scopekv", plain.encode(), bytes.fromhex(plain), bytes(fingerprint)]
    tags = [block_tag(fingerprint, [(scope, 0)], name) for name in names]
    tags += [block_tag(fingerprint, [], name) for name in names]
    tags += [block_tag(fingerprint, [(ScopeId(name[:16].ljust(16)), 0)]) for name in names[1:]]
    tags += [block_tag(fingerprint, [(scope, 0), (scope, 0)]), block_tag(fingerprint, [(scope, 1)])]
    assert len({*tags, plain}) == len(tags) + 1
