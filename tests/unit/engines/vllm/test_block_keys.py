"""The hook in vLLM's own hashing: real requests, real block hashes."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scopekv.core.blocks import Namespace
from scopekv.engines.vllm.plugin import Guard, judged_first, scoped_extra_keys

pytestmark = pytest.mark.engine
BLOCK = 32
HOME = Namespace("m", "r", "t", "float32", "auto", BLOCK, "l", "sha256_cbor")
TOKENS = list(range(5 * BLOCK))
SALT = "5a" * 32
Mint = Callable[..., str]
Hash = Callable[..., Any]


@pytest.fixture(scope="session")
def vllm() -> None:
    """Import vLLM once (10 s), with the warnings of what it imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module("vllm.v1.request")


@pytest.fixture
def hashed(vllm: None, guard: Guard, monkeypatch: pytest.MonkeyPatch) -> Hash:
    """Make a request as the engine does and return it, hashed under the guard."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.request import Request

    kv_cache_utils.init_none_hash(sha256_cbor)
    original = kv_cache_utils.generate_block_hash_extra_keys
    keyed = scoped_extra_keys(guard, original)
    monkeypatch.setattr(kv_cache_utils, "generate_block_hash_extra_keys", keyed)
    judged = judged_first(guard, Request.update_block_hashes)
    monkeypatch.setattr(Request, "update_block_hashes", judged)
    hasher = kv_cache_utils.get_request_block_hasher(BLOCK, sha256_cbor)

    def make(ticket: object = None, tokens: list[int] = TOKENS, **more: Any) -> Any:
        extra = {"kv_transfer_params": {"scopekv": ticket}} if ticket is not None else None
        return Request(
            "request", list(tokens), SamplingParams(max_tokens=1, extra_args=extra), None,
            cache_salt=more.pop("salt", SALT), block_hasher=hasher, **more,
        )  # fmt: skip

    return make


def common(one: Any, other: Any) -> int:
    both = set(one.block_hashes) & set(other.block_hashes)
    assert set(one.block_hashes[: len(both)]) == both
    return len(both)


PUBLIC = [(2 * BLOCK + 8, "p")]  # two whole blocks, and a block that is partly private


def test_two_tickets_share_exactly_the_public_blocks(hashed: Hash, ticket: Mint) -> None:
    ann = hashed(ticket(TOKENS, PUBLIC, "a"))
    bob = hashed(ticket(TOKENS, PUBLIC, "b"), salt="other")
    assert len(ann.block_hashes) == 5
    assert common(ann, bob) == 2
    again = hashed(ticket(TOKENS, PUBLIC, "a"), salt="other")
    assert common(ann, again) == 5


def test_requests_without_a_good_ticket_meet_nobody(hashed: Hash, ticket: Mint) -> None:
    good = hashed(ticket(TOKENS, PUBLIC, "a"))
    used = ticket(TOKENS, PUBLIC, "a")
    assert common(good, hashed(used)) == 5
    bads: list[object] = [None, None, "forged", "forged", 1, {}, used, used[:-4]]
    for bad in bads:
        request = hashed(bad)
        assert common(good, request) == 0
        assert common(request, hashed(bad)) == 0


def test_drifted_tokens_share_nothing_beyond_the_match(hashed: Hash, ticket: Mint) -> None:
    closed = [(BLOCK, "p"), (3 * BLOCK, "g")]
    ann = hashed(ticket(TOKENS, closed, "a"))
    drifted = [*TOKENS[: 2 * BLOCK], 999, *TOKENS[2 * BLOCK + 1 :]]
    bob = hashed(ticket(TOKENS, closed, "b"), drifted)
    assert common(ann, bob) == 1
    assert common(bob, hashed(ticket(drifted, closed, "a"))) == 1


def test_the_salt_leaves_only_with_a_good_ticket(hashed: Hash, ticket: Mint, guard: Guard) -> None:
    from vllm.v1.core import kv_cache_utils

    keys = kv_cache_utils.generate_block_hash_extra_keys
    good, bad = hashed(ticket(TOKENS, PUBLIC, "a")), hashed("forged")
    found, _ = keys(good, 0, BLOCK, 0)
    assert [key[0] for key in found] == ["scopekv"]
    found, _ = keys(bad, 0, BLOCK, 0)
    assert found[0] == ("cache_salt", SALT)
    assert [key[0] for key in found] == ["cache_salt", "scopekv"]
    assert guard.counts == {"ok": 1, "malformed": 1}  # judged once per request


def test_the_salt_alone_isolates_where_the_plugin_is_absent(vllm: None) -> None:
    """L3: stock hashing ignores the ticket and keeps the salt."""
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256_cbor
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.request import Request

    kv_cache_utils.init_none_hash(sha256_cbor)
    hasher = kv_cache_utils.get_request_block_hasher(BLOCK, sha256_cbor)
    one, same, other = (
        Request("r", TOKENS, SamplingParams(max_tokens=1), None, cache_salt=s, block_hasher=hasher)
        for s in ("ann", "ann", "bob")
    )
    assert (common(one, same), common(one, other)) == (5, 0)


@pytest.mark.parametrize("named", ["a" * 16, SALT, "scopekv", "cache_salt", "isolated-"])
def test_an_adapter_named_like_a_salt_or_scope_is_none(
    hashed: Hash, ticket: Mint, named: str, tmp_path: Path
) -> None:
    """I4: without a salt, with an adapter of its name, and the other way round."""
    from vllm.lora.request import LoRARequest

    adapter = LoRARequest(named, 1, str(tmp_path))
    plain = hashed(ticket(TOKENS, PUBLIC, "a"), salt=named)
    with_adapter = hashed(ticket(TOKENS, PUBLIC, "a"), salt=None, lora_request=adapter)
    assert common(plain, with_adapter) == 0
    assert common(hashed(None, salt=named), hashed(None, salt=None, lora_request=adapter)) == 0
    again = hashed(ticket(TOKENS, PUBLIC, "b"), salt=None, lora_request=adapter)
    assert common(with_adapter, again) == 2


def test_the_content_of_an_adapter_counts(hashed: Hash, ticket: Mint, tmp_path: Path) -> None:
    from vllm.lora.request import LoRARequest

    weights = tmp_path / "adapter"
    weights.mkdir()
    requests = []
    for content in (b"old", b"newer"):
        (weights / "adapter_model.safetensors").write_bytes(content)
        adapter = LoRARequest("style", 1, str(weights))
        requests.append(hashed(ticket(TOKENS, PUBLIC, "a"), lora_request=adapter))
    assert common(*requests) == 0


@pytest.mark.parametrize(
    "changed", [{"kv_dtype": "fp8"}, {"revision": "r2"}, {"layout": "l2"}, {"block_size": 64}]
)
def test_another_namespace_is_a_miss(
    hashed: Hash, ticket: Mint, guard: Guard, changed: dict[str, Any]
) -> None:
    """I5: a ticket for the old one shares with nobody, one for the new one has other hashes."""
    home = hashed(ticket(TOKENS, PUBLIC, "a"))
    away = replace(HOME, **changed)
    guard.bind(away)
    assert common(home, hashed(ticket(TOKENS, PUBLIC, "a"))) == 0
    assert guard.counts["other_namespace"] == 1
    assert common(home, hashed(ticket(TOKENS, PUBLIC, "a", namespace=away))) == 0
    assert guard.counts["ok"] == 2


def test_an_epoch_makes_old_blocks_unreachable(hashed: Hash, ticket: Mint) -> None:
    old, new = (hashed(ticket(TOKENS, PUBLIC, "a", epoch=epoch)) for epoch in (0, 1))
    assert common(old, new) == 0


def test_events_publish_opaque_tags_alone(hashed: Hash, ticket: Mint) -> None:
    """I10: no scope id, ticket or salt in what subscribers read of a scoped request."""
    from vllm.v1.core import kv_cache_utils

    text = ticket(TOKENS, PUBLIC, "a")
    request = hashed(text)
    keys, starts = kv_cache_utils.generate_block_hash_extra_keys, range(0, 5 * BLOCK, BLOCK)
    published = [keys(request, start, start + BLOCK, 0)[0] for start in starts]
    shown = kv_cache_utils.to_event_extra_keys(published)
    assert shown is not None
    flat = repr(shown)
    assert text not in flat
    assert SALT not in flat
    for letter in "pa":
        assert (letter.encode() * 16).hex() not in flat
        assert letter * 16 not in flat
    tags = {published[0][0][1], published[2][0][1], published[4][0][1]}
    assert len(tags) == 3
    assert all(len(tag) == 64 and set(tag) <= set("0123456789abcdef") for tag in tags)


def test_no_text_of_the_ticket_stays_on_the_request(hashed: Hash, ticket: Mint) -> None:
    """vLLM prints requests when it crashes."""
    for text in (ticket(TOKENS, PUBLIC, "a"), "forged-ticket-text"):
        request = hashed(text)
        assert text not in repr(vars(request))
        assert text not in repr(request.sampling_params)
        assert not request.kv_transfer_params


def test_a_prompt_below_one_block_is_judged_as_well(
    hashed: Hash, ticket: Mint, guard: Guard
) -> None:
    """It has no block to hash yet; its ticket must not wait on the request for one."""
    text = ticket(TOKENS, [(8, "p")], "a")
    request = hashed(text, TOKENS[:10])
    assert guard.counts == {"ok": 1}
    assert text not in repr(vars(request))
    assert text not in repr(request.sampling_params)


def test_a_token_id_that_no_model_has_ends_no_engine(hashed: Hash, ticket: Mint) -> None:
    """Stock vLLM hashes it; so must a request with a ticket."""
    odd = [-1, *TOKENS[1:]]
    hashed(None, odd)
    request = hashed(ticket(TOKENS, PUBLIC, "a"), odd)
    assert common(request, hashed(ticket(TOKENS, PUBLIC, "b"), odd)) == 0
