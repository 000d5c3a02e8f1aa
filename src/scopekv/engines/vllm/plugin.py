"""The general plugin: loaded by vLLM in each of its processes, perhaps more than once.

Write path: a request's ticket is judged when the request is made (`Request.__init__`, before its
first block is hashed), and each block gets its tag as one more extra key. Read path: none of our
own; vLLM finds a block by the hash that now covers its scopes.
"""

from __future__ import annotations

import functools
import logging
import os
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scopekv.adapters.broker_client import BrokerClient
from scopekv.adapters.ed25519 import KeyFile
from scopekv.core.blocks import Fingerprint, Namespace
from scopekv.core.chains import Link
from scopekv.core.enforcement import Gate, Verdict, judge
from scopekv.core.fences import Fences
from scopekv.core.replay import UseLedger
from scopekv.core.tickets import AudienceId, audience_id
from scopekv.engines.vllm import compat
from scopekv.engines.vllm.engine_calls import EngineSide
from scopekv.engines.vllm.ledger import BlockLedger, Origin
from scopekv.engines.vllm.namespace import adapter_digest, namespace_of
from scopekv.engines.vllm.settings import PluginSettings
from scopekv.errors import ConfigError
from scopekv.store.keyring import Keyring

if TYPE_CHECKING:
    from scopekv.engines.vllm.offloading.manager import ScopedOffloadingManager

PARAMETER = "scopekv"  # in kv_transfer_params
_VERDICT = "_scopekv_verdict"
_NOTED = "_scopekv_noted"
_MARK = "_scopekv_guard"
_UNBOUND = Fingerprint(bytes(32))

ExtraKeys = tuple[tuple[Any, ...] | None, int]
log = logging.getLogger("vllm.scopekv")


class Guard:
    """Judges requests for one engine process. Until `bind`, no ticket verifies."""

    def __init__(self, settings: PluginSettings) -> None:
        self.settings = settings
        self.audience: AudienceId = audience_id(settings.instance_group)
        self.keys = KeyFile(settings.keys_path)
        self.counts: Counter[str] = Counter()
        self.fences = Fences()
        self.keyring = _keyring(settings)
        self.requests: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.scheduler: weakref.ReferenceType[Any] | None = None
        self.tiers: ScopedOffloadingManager | None = None
        self.host_region: Any = None  # host memory as first mapped in this process
        self._uses = UseLedger()
        self._lock = threading.Lock()  # the input thread and the engine loop both hash
        self.namespace: Namespace | None = None
        self.blocks: BlockLedger | None = None
        self._gate = Gate(self.keys, self.audience, _UNBOUND, self.fences)

    def bind(self, namespace: Namespace) -> None:
        """Set the namespace that tickets must name, once the engine knows it."""
        self.namespace = namespace
        self.blocks = BlockLedger(namespace.block_size)
        self._gate = Gate(self.keys, self.audience, namespace.fingerprint(), self.fences)

    def verdict(self, request: Any) -> Verdict:
        """Return the request's verdict, judged at the first call and kept with the request."""
        held: Verdict | None = getattr(request, _VERDICT, None)
        if held is None:
            ticket = _take_ticket(request)
            held = self.judge(
                ticket, request.prompt_token_ids, adapter_digest(request.lora_request)
            )
            setattr(request, _VERDICT, held)
            if held.ticket is not None and self.keyring is not None:
                links = [Link(grant.scope, grant.epoch) for grant in held.ticket.grants]
                self.keyring.request(str(ticket), links)
            with self._lock:
                self.requests[request.request_id] = request
        return held

    def live_requests(self) -> list[Any]:
        """The requests that are not finished. The input thread adds to them meanwhile."""
        with self._lock:
            held = list(self.requests.values())
        return [request for request in held if not request.is_finished()]

    def note_blocks(self, request: Any) -> None:
        """Remember under which scopes a request's new blocks are made."""
        ticket = self.verdict(request).ticket
        first = getattr(request, _NOTED, 0)
        new = request.block_hashes[first:]
        if ticket is not None and new and self.blocks is not None:
            self.blocks.note(new, first, ticket.grants)
            setattr(request, _NOTED, first + len(new))

    def origin(self, block_hash: bytes) -> Origin | None:
        """Under which scopes a block was made, if it was under a ticket."""
        return self.blocks.get(block_hash) if self.blocks is not None else None

    def queue_tokens(self, request: Any) -> int:
        """Prefill tokens that the engine has yet to do for requests it already runs."""
        scheduler = self.scheduler() if self.scheduler is not None else None
        if scheduler is None:
            return 0
        return sum(
            max(0, other.num_prompt_tokens - other.num_computed_tokens)
            for other in scheduler.running
            if other is not request
        )

    def judge(self, ticket: object, token_ids: list[int] | None, adapter: bytes) -> Verdict:
        """Judge a ticket now, use it up, and count the reason."""
        with self._lock:
            verdict = judge(
                ticket,
                token_ids,
                gate=self._gate,
                ledger=self._uses,
                now_ms=time.time_ns() // 1_000_000,
                monotonic_ms=time.monotonic_ns() // 1_000_000,
                nonce=secrets.token_bytes(16),
                adapter=adapter,
            )
            self.counts[verdict.reason] += 1
        return verdict


def _take_ticket(request: Any) -> object:
    """Take the ticket out of the request: vLLM prints a request's parameters when it crashes."""
    parameters = request.kv_transfer_params
    if not isinstance(parameters, dict):
        return None
    ticket = parameters.pop(PARAMETER, None)
    if not parameters:
        request.kv_transfer_params = None
    return ticket


def _keyring(settings: PluginSettings) -> Keyring | None:
    """Where this engine's sealing keys come from; None where no broker is named."""
    if settings.broker is None:
        return None
    return Keyring(BrokerClient(settings.broker), time.monotonic)


def register() -> None:
    """Entry point. Does nothing without SCOPEKV_TICKET_KEYS; raises rather than half install."""
    settings = PluginSettings.read(os.environ)
    if settings is None:
        log.info("ScopeKV is installed and rests: SCOPEKV_TICKET_KEYS is not set.")
        return
    if installed_guard() is not None:
        return
    if "scopekv" not in (os.environ.get("VLLM_PLUGINS") or "").split(","):
        raise ConfigError(
            "SCOPEKV_TICKET_KEYS is set, but VLLM_PLUGINS does not name scopekv: vLLM leaves "
            "out the plugin's status and checks. Set VLLM_PLUGINS=scopekv (and what else you load)."
        )
    compat.check_version(compat.vllm_version())
    compat.check_seams()
    install(Guard(settings))


def installed_guard() -> Guard | None:
    """The guard of this process, if the plugin was installed here."""
    from vllm.v1.core import kv_cache_utils

    guard: Guard | None = getattr(kv_cache_utils.generate_block_hash_extra_keys, _MARK, None)
    return guard


def install(guard: Guard) -> None:
    """Wrap vLLM's seams: block keys wherever they were imported, engine start, engine calls."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.engine.core import EngineCore
    from vllm.v1.request import Request

    keyed = scoped_extra_keys(guard, kv_cache_utils.generate_block_hash_extra_keys)
    for module in compat.hashing_modules():
        module.generate_block_hash_extra_keys = keyed
    Request.update_block_hashes = judged_first(guard, Request.update_block_hashes)
    Scheduler.__init__ = _checked_start(guard, Scheduler.__init__)
    EngineCore.collective_rpc = _own_calls(guard, EngineCore.collective_rpc)


def scoped_extra_keys(
    guard: Guard, original: Callable[[Any, int, int, int], ExtraKeys]
) -> Callable[[Any, int, int, int], ExtraKeys]:
    """Return vLLM's function with the scope tag added to what it returns.

    The fail-safe salt leaves the key of a request whose ticket holds: the tag says more exactly
    who may share. Of any other request it stays.
    """

    @functools.wraps(original)
    def keyed(request: Any, start: int, end: int, start_mm_idx: int) -> ExtraKeys:
        keys, next_mm_idx = original(request, start, end, start_mm_idx)
        verdict = guard.verdict(request)
        kept = keys or ()
        if verdict.ticket is not None and start == 0:
            kept = tuple(key for key in kept if key[0] != "cache_salt")
        return (*kept, ("scopekv", verdict.tags.tag(start, end))), next_mm_idx

    setattr(keyed, _MARK, guard)
    return keyed


def judged_first(guard: Guard, original: Callable[[Any], None]) -> Callable[[Any], None]:
    """Judge a request when it is made, even one too short to have a block to hash."""

    @functools.wraps(original)
    def update_block_hashes(self: Any) -> None:
        guard.verdict(self)
        original(self)
        guard.note_blocks(self)

    return update_block_hashes


def _checked_start(guard: Guard, original: Callable[..., None]) -> Callable[..., None]:
    """Check and bind where the engine's configuration is final: when its scheduler is made.

    The engine core itself is already half made when plugins load in its process.
    """

    @functools.wraps(original)
    def start(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:
        compat.check_config(vllm_config)
        # Before vLLM's part, which makes the tiers: they are bound to the namespace.
        size = int(vllm_config.cache_config.block_size)
        guard.bind(namespace_of(vllm_config, size, compat.machine()))
        guard.scheduler = weakref.ref(self)
        original(self, vllm_config, *args, **kwargs)

    return start


def _own_calls(guard: Guard, original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    """Answer `scopekv_*` calls in the engine's process, between two steps."""
    sides: dict[int, EngineSide] = {}

    @functools.wraps(original)
    def collective_rpc(
        self: Any,
        method: Any,
        timeout: float | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> list[Any]:
        if isinstance(method, str) and method.startswith("scopekv_"):
            if id(self) not in sides:
                sides[id(self)] = EngineSide(self, guard)
            return [sides[id(self)].call(method.removeprefix("scopekv_"), args)]
        return original(self, method, timeout, args, kwargs)

    return collective_rpc
