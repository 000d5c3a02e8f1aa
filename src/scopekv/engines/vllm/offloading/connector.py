"""vLLM's offloading connector, with a clock on each step and a report on each request."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector import OffloadingConnector

from scopekv.engines.vllm.offloading.manager import ScopedOffloadingManager


class ScopedConnector(OffloadingConnector):
    """Measures prefill between `build_connector_meta` and `get_kv_connector_stats` of a step."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._step: tuple[float, int, int] | None = None

    @property
    def _scoped(self) -> ScopedOffloadingManager | None:
        return self.connector_scheduler.manager if self.connector_scheduler is not None else None

    def build_connector_meta(self, scheduler_output: Any) -> Any:
        self._step = self._prefill(scheduler_output)
        return super().build_connector_meta(scheduler_output)

    def get_kv_connector_stats(self) -> Any:
        step, self._step = self._step, None
        if step is not None and self._scoped is not None:
            began, start, tokens = step
            self._scoped.planner.observe(start, tokens, time.perf_counter() - began)
        return super().get_kv_connector_stats()

    def take_events(self) -> Iterable[Any]:
        """Host memory's events as vLLM tells them, and the sealed tiers'."""
        yield from super().take_events()
        for tier in self._scoped.secondary_tiers if self._scoped is not None else ():
            yield from tier.kv_events()

    def request_finished(self, request: Any, block_ids: list[int]) -> Any:
        return self._reported(request, super().request_finished(request, block_ids))

    def request_finished_all_groups(self, request: Any, block_ids: tuple[list[int], ...]) -> Any:
        return self._reported(request, super().request_finished_all_groups(request, block_ids))

    def _reported(self, request: Any, result: tuple[bool, Any]) -> tuple[bool, Any]:
        """Tell the gateway what was fetched, and why; it takes this out of the answer."""
        asked = self._scoped.requests.get(request.request_id) if self._scoped else None
        if asked is None or asked.plan is None or result[1] is not None:
            return result
        return result[0], {"scopekv": asked.report()}

    @staticmethod
    def _prefill(output: Any) -> tuple[float, int, int] | None:
        """(start time, first token, tokens) of a step that prefills one request; else None.

        Steps of several prefills say less about positions, so they are left out.
        """
        scheduled = output.num_scheduled_tokens
        prefills = [(req_id, count) for req_id, count in scheduled.items() if count > 1]
        if len(prefills) != 1:
            return None
        req_id, count = prefills[0]
        for new in output.scheduled_new_reqs:
            if new.req_id == req_id:
                return time.perf_counter(), new.num_computed_tokens, count
        cached = output.scheduled_cached_reqs
        if req_id in cached.req_ids:
            start = cached.num_computed_tokens[cached.req_ids.index(req_id)]
            return time.perf_counter(), start, count
        return None
