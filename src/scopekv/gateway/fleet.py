"""The engines behind a gateway: looked at every second or two, taken in, sent away."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from scopekv.core.tickets import AudienceId, KeyId
from scopekv.errors import NotFound, ScopeKVError, Unavailable, UnknownModel
from scopekv.gateway.health import Examiner
from scopekv.gateway.instances import Instance, InstanceAddress, Isolation

POLL_SECONDS = 2.0  # while it is up
RETURN_SECONDS = 1.0  # while it is not
CLOSE_SECONDS = 0.5
log = logging.getLogger("scopekv.instances")


class Fleet:
    """All instances of one group. The list is replaced, not changed, when instances come or go."""

    def __init__(
        self,
        addresses: Sequence[InstanceAddress],
        *,
        audience: AudienceId,
        key_id: KeyId,
    ) -> None:
        self.instances = [Instance.at(address) for address in addresses]
        self._examiner = Examiner(audience, key_id)
        self._started = False
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()  # looks out of turn, instances that leave
        self.on_forgotten: list[Callable[[str], None]] = []  # an instance lost what it had cached

    @property
    def before_use(self) -> Callable[[Instance], Awaitable[None]] | None:
        """What an instance with the plugin owes before it gets requests."""
        return self._examiner.before_use

    @before_use.setter
    def before_use(self, call: Callable[[Instance], Awaitable[None]]) -> None:
        self._examiner.before_use = call

    async def start(self) -> None:
        """Look at every instance once, then keep looking."""
        await asyncio.gather(*(self.look(instance) for instance in self.instances))
        self._started = True
        for instance in self.instances:
            self._keep_watch(instance)

    async def stop(self) -> None:
        tasks = [*self._watches.values(), *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for instance in self.instances:
            await instance.close()

    def models(self) -> list[str]:
        """The names that clients may ask for, in the order of the instances."""
        return list(dict.fromkeys(m for i in self.instances if i.up for m in i.models))

    def serving(self, model: str, tried: Sequence[Instance] = ()) -> list[Instance]:
        """Instances for a request: of those that were not tried, the scoped ones if there are any.

        One whose circuit is open counts only where there is no other. Raises `UnknownModel` for a
        model that no instance has, `Unavailable` when none is up.
        """
        left = [
            i for i in self.instances if i.takes_requests and model in i.models and i not in tried
        ]
        if left:
            left = [i for i in left if i.isolation is Isolation.SCOPED] or left
            if [i for i in left if i.circuit.open]:
                now = asyncio.get_running_loop().time()
                return [i for i in left if i.circuit.allows(now)] or left
            return left
        having = any(i.up and model in i.models for i in self.instances)
        if having or not any(instance.up for instance in self.instances):
            raise Unavailable("no engine is ready")
        known = ", ".join(self.models())
        raise UnknownModel(f"the model {model[:120]!r} does not exist here; there is: {known}")

    def named(self, name: str) -> Instance:
        """Raises `NotFound`."""
        for instance in self.instances:
            if instance.address.name == name:
                return instance
        raise NotFound(f"there is no instance {name[:120]!r}")

    async def reconcile(self, addresses: Sequence[InstanceAddress]) -> None:
        """Make the instances those of `addresses`: what stays keeps its state and its load.

        New ones are looked at before this returns. What is gone, or has another URL or key, gets
        nothing new and is closed once its requests have ended. Raises `ConfigError`, changing
        nothing, for a URL that is none.
        """
        known = {instance.address: instance for instance in self.instances}
        fresh = [Instance.at(address) for address in addresses if address not in known]
        by_address = known | {instance.address: instance for instance in fresh}
        kept = [by_address[address] for address in addresses]
        leaving = [instance for instance in self.instances if instance not in kept]
        self.instances = kept
        for instance in leaving:
            self._leave(instance)
        await asyncio.gather(*(self.look(instance) for instance in fresh))
        if self._started:
            for instance in fresh:
                self._keep_watch(instance)

    async def look(self, instance: Instance) -> None:
        """Ask an instance what it is now. Never raises for what it answers."""
        if instance.asked_at is None:
            instance.asked_at = asyncio.get_running_loop().time()
        try:
            await self._examiner.health(instance)
            instance.models = await self._examiner.models(instance)
            await self._look_at_plugin(instance)
        except NotFound:
            self._see(instance, Isolation.WHOLE_PROMPT, "the ScopeKV plugin did not answer")
        except ScopeKVError as error:
            self.lost(instance, str(error))
        except (LookupError, TypeError, ValueError):
            self.lost(instance, "it does not answer as vLLM does")
        finally:
            instance.asked_at = None

    def suspect(self, instance: Instance) -> None:
        """Look at an instance now: it broke a connection off."""
        if len(self._tasks) < 2 * len(self.instances):
            self._spawn(self.look(instance))

    async def gone(self, instance: Instance) -> bool:
        """Whether an instance that broke off has ended; if so it gets nothing more."""
        gone = await self._examiner.gone(instance)
        if gone:
            self.lost(instance, "it has ended")
        return gone

    def lost(self, instance: Instance, reason: str) -> None:
        """Send nothing more to an instance until it answers again."""
        self._see(instance, Isolation.NONE, reason)

    async def _look_at_plugin(self, instance: Instance) -> None:
        known = instance.isolation is Isolation.SCOPED
        status = await self._examiner.status(instance, live=not known)
        instance.status = status
        problem = self._examiner.problem(status)
        if problem:
            self._see(instance, Isolation.WHOLE_PROMPT, problem)
        elif status["instance"] != instance.epoch:
            if status["instance"] != instance.lived:
                instance.lived = str(status["instance"])
                self._forgotten(instance)
            note = await self._examiner.read_in(instance, status)
            instance.epoch = str(status["instance"])
            self._see(instance, Isolation.SCOPED, note)

    def _see(self, instance: Instance, isolation: Isolation, reason: str) -> None:
        if isolation is not instance.isolation:
            log.log(
                logging.INFO if isolation is Isolation.SCOPED else logging.WARNING,
                "instance %s: %s (%s)",
                instance.address.name,
                isolation,
                reason,
            )
            if isolation is Isolation.WHOLE_PROMPT:  # nothing tells whether it was restarted
                instance.lived = ""
                self._forgotten(instance)
        if isolation is not Isolation.SCOPED:
            instance.epoch, instance.texts = "", None
        instance.isolation, instance.reason = isolation, reason

    def _forgotten(self, instance: Instance) -> None:
        for tell in self.on_forgotten:
            tell(instance.address.name)

    def _keep_watch(self, instance: Instance) -> None:
        watch = asyncio.create_task(self._watch(instance))
        self._watches[instance.address.name] = watch

    async def _watch(self, instance: Instance) -> None:
        while not instance.removed:
            await asyncio.sleep(POLL_SECONDS if instance.up else RETURN_SECONDS)
            try:
                await self.look(instance)
            except Exception as error:  # noqa: BLE001 - the watch must outlive what it meets
                self.lost(instance, f"unexpected {type(error).__name__}")

    def _leave(self, instance: Instance) -> None:
        instance.removed = True
        name = instance.address.name
        log.info("instance %s: removed, with %d requests under way", name, instance.in_flight)
        watch = self._watches.pop(name, None)
        if watch is not None:
            watch.cancel()
        self._forgotten(instance)
        self._spawn(self._close_when_idle(instance))

    async def _close_when_idle(self, instance: Instance) -> None:
        try:
            while instance.in_flight:  # noqa: ASYNC110 - a load is counted, not waited for
                await asyncio.sleep(CLOSE_SECONDS)
        finally:
            await instance.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
