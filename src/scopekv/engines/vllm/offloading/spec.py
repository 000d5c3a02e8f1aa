"""The offloading spec that vLLM loads by name: ScopeKV's managers over vLLM's host memory.

    --kv-transfer-config '{"kv_connector": "ScopedConnector", "kv_role": "kv_both",
      "kv_connector_module_path": "scopekv.engines.vllm.offloading.connector",
      "kv_connector_extra_config": {"spec_name": "ScopedOffloadingSpec", ...}}'

`scopekv up --tier` and `scopekv tiers config` write it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from vllm.platforms import current_platform
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

from scopekv.engines.vllm.offloading.manager import ScopedOffloadingManager
from scopekv.engines.vllm.offloading.metrics import definitions
from scopekv.engines.vllm.offloading.worker import HostWorker
from scopekv.engines.vllm.plugin import Guard, installed_guard
from scopekv.errors import ConfigError

HOST_POLICY = ("ScopedHostPolicy", "scopekv.engines.vllm.offloading.host_policy")


class ScopedOffloadingSpec(TieringOffloadingSpec):
    """Host memory as the primary tier, sealed tiers behind it."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._manager: Any = None
        self._worker: Any = None
        self.eviction_policy, self.cache_policy_module_path = HOST_POLICY

    @classmethod
    def build_metric_definitions(cls, extra_config: dict[str, Any]) -> dict[str, Any]:
        return super().build_metric_definitions(extra_config) | definitions()

    def get_manager(self) -> Any:
        if self._manager is None:
            guard = installed_guard()
            if guard is None:
                raise ConfigError(
                    "ScopeKV's tiers need its plugin: set SCOPEKV_TICKET_KEYS and VLLM_PLUGINS."
                )
            # vLLM's own manager, made first, checks the settings and makes the tiers.
            made = super().get_manager()
            self._mapped(guard, self._scheduler_mmap)
            self._manager = ScopedOffloadingManager(
                made.primary_tier,
                made.secondary_tiers,
                guard=guard,
                hashes_per_chunk=self.blocks_per_chunk
                * (self.tokens_per_block[0] // self.tokens_per_hash),
                tokens_per_chunk=self.blocks_per_chunk * self.tokens_per_block[0],
                groups=len(self.tokens_per_block),
            )
        return self._manager

    def get_worker(self, kv_caches: Any) -> Any:
        if current_platform.is_cuda_alike() or current_platform.is_xpu():
            return super().get_worker(kv_caches)
        if self._worker is None:
            self._worker = self.create_worker(kv_caches)
        return self._worker

    def create_worker(self, kv_caches: Any) -> Any:
        if current_platform.is_cuda_alike() or current_platform.is_xpu():
            worker = super().create_worker(kv_caches)
            region = worker._mmap_region
        else:
            region = SharedOffloadRegion(
                engine_id=self._engine_id,
                num_chunks=self.num_chunks,
                rank=0 if self.replicated_layout else self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            worker = HostWorker(kv_caches, self.blocks_per_chunk, region)
        guard = installed_guard()
        if guard is not None:
            self._mapped(guard, region)
        return worker

    def _mapped(self, guard: Guard, region: Any) -> None:
        """Take host memory's name away once scheduler and worker have both mapped it.

        Then it ends with its process, however that ends: its content is plain. vLLM keeps the name
        until a clean shutdown. With several ranks nobody here knows when the last has mapped it.
        """
        if self.config.parallel.world_size != 1 or region is None:
            return
        if not region._creator:
            Path(region.mmap_path).unlink(missing_ok=True)
            if guard.host_region is not None:
                guard.host_region._creator = False  # nothing is left for it to unlink
        guard.host_region = region
