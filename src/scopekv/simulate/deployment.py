"""A whole deployment in one process: a registry, a real gateway, and engines of any kind.

Everything lies in one folder and on loopback ports. Administration is the program's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

from scopekv.compose import World, open_world
from scopekv.errors import Misuse
from scopekv.gateway.administration import LOCAL_OPERATOR, Administration
from scopekv.gateway.app import Gateway
from scopekv.gateway.instances import InstanceAddress
from scopekv.gateway.instances_http import Restart
from scopekv.gateway.settings import GatewaySettings


class Deployment:
    """One gateway over one registry. Use: `start`, then `stop`; once each.

    `registry`: a PostgreSQL URL; empty: SQLite in the folder. `world` may be replaced before
    `start`, for a registry that misbehaves.
    """

    def __init__(
        self, folder: Path, settings: GatewaySettings | None = None, *, registry: str = ""
    ) -> None:
        self.registry_file = folder / "registry.db"
        self.world: World = open_world(folder, registry or f"sqlite:///{self.registry_file}")
        self.administration = Administration(self.world.registry)
        self._settings = settings or GatewaySettings((), port=0, stop_seconds_max=0.5)
        self._gateway: Gateway | None = None

    @property
    def keys_path(self) -> Path:
        """What an engine of this deployment reads as SCOPEKV_TICKET_KEYS."""
        return self.world.ticket_keys

    @property
    def gateway(self) -> Gateway:
        if self._gateway is None:
            raise Misuse("the deployment has not been started")
        return self._gateway

    @property
    def own_url(self) -> str:
        """Where the gateway will listen, for engines that start before it: needs a set port."""
        return f"http://127.0.0.1:{self._settings.port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.gateway.port}"

    async def start(
        self, engines: Sequence[InstanceAddress], *, restart: Restart | None = None
    ) -> Self:
        """Start the gateway in front of these engines and wait until they are warm."""
        settings = replace(self._settings, instances=tuple(engines))
        self._gateway = Gateway(settings, self.world, restart=restart)
        await self._gateway.start()
        await self._gateway.warmer.settle()
        return self

    async def stop(self) -> None:
        """Stop the gateway, if it runs, and close the registry."""
        if self._gateway is not None:
            await self._gateway.stop()
        self.world.registry.close()

    def account(
        self, org: str, name: str, *, service: bool = False, roles: Sequence[str] = ()
    ) -> str:
        """Make an account, and its organisation if need be. Returns a fresh API key."""
        orgs = self.administration.orgs.list(LOCAL_OPERATOR, after="", limit=1000).data
        if org not in {getattr(one, "name", None) for one in orgs}:
            self.administration.orgs.create(LOCAL_OPERATOR, org)
        self.administration.accounts.create(LOCAL_OPERATOR, org, name, service=service)
        for role in roles:
            self.administration.accounts.set_role(LOCAL_OPERATOR, org, name, role, held=True)
        return self.key(org, name)

    def key(self, org: str, name: str, *, expires_at: int | None = None) -> str:
        """Make another API key of an account."""
        keys = self.administration.keys
        return keys.create(LOCAL_OPERATOR, org, name, label="", expires_at=expires_at).secret

    def group(self, org: str, name: str, *members: str) -> None:
        """Make a group with these members."""
        self.administration.groups.create(LOCAL_OPERATOR, org, name)
        for member in members:
            self.administration.groups.set_member(LOCAL_OPERATOR, org, name, member, inside=True)

    def publish(self, name: str, audience: str, text: str) -> str:
        """Publish a document as the operator. Returns its id."""
        return self.administration.documents.publish(
            LOCAL_OPERATOR, name=name, audience=audience, text=text, org=None
        ).id
