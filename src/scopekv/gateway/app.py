"""The gateway: its routes, its parts, and their life."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from scopekv.compose import OidcVerifier, World
from scopekv.console import CONSOLE_PLACES, Console, Parts
from scopekv.core.tickets import audience_id
from scopekv.errors import Misuse, NotFound, ScopeKVError
from scopekv.gateway.access import Access
from scopekv.gateway.admin_http import PREFIX as ADMIN
from scopekv.gateway.admin_serving import AdminServing
from scopekv.gateway.administration import Administration
from scopekv.gateway.apis import APIS
from scopekv.gateway.apis.messages import COUNT_TOKENS, MESSAGES, worded
from scopekv.gateway.cached_contents import CachedContents, Ender, takes
from scopekv.gateway.counting import TokenCount
from scopekv.gateway.discovery import Discovery
from scopekv.gateway.errors_http import failure_of, http_error
from scopekv.gateway.explaining import EXPLAIN, Explainer, Forgetter, Recents
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.http.limits import RequestLimits, ServerLimits
from scopekv.gateway.http.messages import Failure, Request
from scopekv.gateway.http.reply import Reply
from scopekv.gateway.http.server import Server
from scopekv.gateway.identity import Identities
from scopekv.gateway.instances_http import InstancesAdmin, Restart
from scopekv.gateway.leases_http import LEASES_PATH, Leases
from scopekv.gateway.locating import IndexLocator
from scopekv.gateway.metrics import Metrics
from scopekv.gateway.permits import Issuer
from scopekv.gateway.probes import Probes
from scopekv.gateway.reading import Reader
from scopekv.gateway.recording import Recorder
from scopekv.gateway.relay import Relay
from scopekv.gateway.request_log import RequestLog
from scopekv.gateway.retention import Expirer
from scopekv.gateway.revocation import Revoker
from scopekv.gateway.routing import Router
from scopekv.gateway.scope_notes import ScopeNotes
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.standing import ENGINES, MODELS, Standing
from scopekv.gateway.upstreams.relay import Upstreams
from scopekv.gateway.waiting import WaitingRoom, engine_room
from scopekv.gateway.warm import Warmer
from scopekv.store.broker import Authority, KeyBroker

Route = Callable[[Request, Reply], Awaitable[None]]
log = logging.getLogger("scopekv.gateway")


class Gateway:
    """One gateway process. Use: `start`, then `stop`; once each."""

    def __init__(
        self, settings: GatewaySettings, world: World, *, restart: Restart | None = None
    ) -> None:
        """`restart`: of an engine by its name, where this process runs the engines."""
        self._settings, self._tracer = settings, world.tracer
        self.port = settings.port
        self.metrics = Metrics(org_label=settings.metrics.org_label)
        self.identities = (
            Identities(
                OidcVerifier(settings.oidc.provider),
                world.registry,
                settings.oidc.identity,
                self.metrics.token_refused,
            )
            if settings.oidc
            else None
        )
        self.access = Access(
            world.registry, in_thread=world.registry_is_remote, identities=self.identities
        )
        issuer = Issuer(
            world.signer.key_id,
            world.signer.sign,
            world.scope_secret,
            audience_id(settings.instance_group),
            settings.ticket_ttl_seconds * 1000,
        )
        self.fleet = Fleet(settings.instances, audience=issuer.audience, key_id=world.signer.key_id)
        self.discovery = Discovery(
            self.fleet,
            settings.instances,
            settings.sources,
            settings.routing.resolve_seconds,
        )
        self.notes = ScopeNotes(
            world.registry, world.wrapper, world.scope_secret, settings.retention
        )
        self.broker = KeyBroker(
            world.registry,
            world.wrapper,
            Authority(world.ticket_checks, issuer.audience),
            settings.retention,
        )
        self.warmer = Warmer(self.access, issuer, self.notes, self.fleet)
        self.revoker = Revoker(world.registry, self.fleet, world.scope_secret, self.metrics)
        self.fleet.before_use = self.revoker.catch_up
        self.leases = Leases(self.broker, world.instance_secret)
        self.expirer = Expirer(self.fleet, self.broker, self.warmer.unpinned)
        self._administration = Administration(world.registry)
        self.ender = Ender(self._administration)
        instances = InstancesAdmin(world.registry, self.fleet, restart)
        self._admin = AdminServing(
            *(self.access, self._administration, instances, self.revoker, settings.routing)
        )
        self.locator = IndexLocator(self.fleet, issuer)
        self.router = Router(self.fleet, self.metrics, settings.routing.in_flight_max, self.locator)
        self.room = engine_room(self.fleet, settings.routing)
        self.probes = Probes(self.access, self.metrics, settings.probes)
        reader = Reader(self.access, self.probes)
        self.remembered = recents = Recents()
        self.forgetter = Forgetter(self.access, recents)
        self.recorder = Recorder(world.tallies)
        self.request_log = RequestLog(settings.request_log, world.scope_secret)
        explainer = Explainer(
            *(self.access, self.router, recents, settings.retention, settings.routing)
        )
        relay = Relay(
            *(self.access, reader, self.probes, issuer, self.notes),
            *(self.fleet, self.router, self.room),
            metrics=self.metrics,
            recents=recents,
            tracer=world.tracer,
            recorder=self.recorder,
            request_log=self.request_log,
        )
        turns = WaitingRoom(lambda: CONSOLE_PLACES, settings.routing, "the console")
        self._console = Console(
            Parts(
                *(self.access, self._administration, self.revoker, explainer, recents, self.fleet),
                *(instances, self.room, turns, world.tallies, world.audits),
            )
        )
        self._cached_contents = CachedContents(
            *(self.access, self._administration, self.router, self.metrics),
            *(settings.cached_contents, settings.routing),
        )
        self.upstreams = Upstreams(
            *(settings.upstreams, settings.routing, self.access, reader, world.scope_secret),
            metrics=self.metrics,
            tracer=world.tracer,
        )
        count = TokenCount(
            *(self.access, reader, self.router, self.metrics), routing=settings.routing
        )
        self.rooms = {
            ENGINES: self.room,
            ("explain", ""): explainer.room,
            ("count_tokens", ""): count.room,
            ("admin", ""): self._admin.room,
            ("console", ""): turns,
            ("cached_contents", ""): self._cached_contents.room,
            **{("upstream", name): room for name, room in self.upstreams.rooms().items()},
        }
        standing = Standing(
            *(self.access, self.fleet, self.warmer, self.rooms, self.upstreams, self.metrics)
        )
        self._routes: dict[tuple[str, str], Route] = {
            **{("POST", path): self.upstreams.before(relay.serve) for path in APIS},
            ("POST", COUNT_TOKENS): self.upstreams.before(count.serve),
            ("POST", EXPLAIN): explainer.serve,
            ("POST", LEASES_PATH): self.leases.serve,
            ("GET", MODELS): standing.models,
            ("GET", "/healthz"): standing.healthz,
            ("GET", "/readyz"): standing.readyz,
            ("GET", "/metrics"): standing.metrics,
        }
        self._model = standing.model
        limits = ServerLimits(request=RequestLimits(body_bytes_max=settings.body_bytes_max))
        self._server = Server(self._serve, limits=limits, error_map=_failure)

    async def start(self) -> None:
        """Look at the engines, then listen on `port`. Raises `OSError`, `ScopeKVError`."""
        self.request_log.start()
        await self.access.refresh()
        if self.identities:
            self.identities.keys.renew()  # in the background: API keys need no provider
        await self.revoker.load()
        await self.fleet.start()
        self.locator.start()
        await self.discovery.start()
        self.port = await self._server.start(self._settings.host, self._settings.port)
        self.revoker.start()
        self.expirer.start()
        self.recorder.start()
        self.forgetter.start()
        self.warmer.start()
        self.ender.start()

    async def reload(self, settings: GatewaySettings) -> None:
        """Take over the instances of other settings, live; anything else needs a restart.

        What stays keeps its requests, its connections and what is known of it. `ConfigError`:
        nothing has changed.
        """
        await self.discovery.replace(settings.instances, settings.sources)

    async def stop(self) -> None:
        """Answer what is under way, then end everything that was started."""
        await self._server.close(grace_seconds=self._settings.stop_seconds_max)
        await self.probes.stop()
        await self.discovery.stop()
        await self.ender.stop()
        await self.warmer.stop()
        await self.expirer.stop()
        await self.revoker.stop()
        await self.recorder.stop()
        await self.forgetter.stop()
        await asyncio.to_thread(self.request_log.stop)
        await self.notes.close()
        await self.locator.stop()
        await self.fleet.stop()
        await self.upstreams.close()
        if self.identities:
            await self.identities.keys.stop()
        self.leases.close()
        await asyncio.to_thread(self._tracer.close)

    async def _serve(self, request: Request, reply: Reply) -> None:
        route = self._routes.get((request.method, request.path))
        if route is None and takes(request.path):
            await self._cached_contents.serve(request, reply)
            return
        route = route or self._route_of_many(request.path)
        if request.path.startswith(MESSAGES):
            reply.worded = worded
        try:
            await route(request, reply)
        except ScopeKVError as error:
            self.metrics.answered(self._place(request), _status(error))
            raise

    def _place(self, request: Request) -> str:
        """What metrics call the path: never what a client made up."""
        if (request.method, request.path) in self._routes:
            return request.path
        return next((one for one in (ADMIN, MODELS) if request.path.startswith(one)), "other")

    def _route_of_many(self, path: str) -> Route:
        """The route of a path that is not the only one of its kind. Raises `Misuse`, `NotFound`."""
        if path.startswith(ADMIN):
            return self._admin.serve
        if self._console.takes(path):
            return self._console.serve
        if path.startswith(f"{MODELS}/"):
            return self._model
        methods = [method for method, known in self._routes if known == path]
        if methods:
            raise Misuse(f"{path} takes {', '.join(methods)}")
        raise NotFound(f"there is no {path[:120]!r} here; see GET /v1/models")


def _status(error: ScopeKVError) -> int:
    return http_error(error)[0]


def _failure(error: Exception) -> Failure:
    """What the client sees of an exception. The log gets its type and place, never its words."""
    if not isinstance(error, ScopeKVError):
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        place = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace else "?"
        log.error("unexpected %s in %s", type(error).__name__, place)
    return failure_of(error)
