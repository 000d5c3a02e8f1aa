"""What the console is made of: the gateway's own parts, and what a page hands back."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scopekv.console.languages import Language
from scopekv.console.sessions import Session
from scopekv.core.administration import Role
from scopekv.core.scopes import Principal
from scopekv.errors import NotFound
from scopekv.gateway.access import Access
from scopekv.gateway.administration import Administration
from scopekv.gateway.explaining import Explainer, Recents
from scopekv.gateway.fleet import Fleet
from scopekv.gateway.http.messages import Headers, Request
from scopekv.gateway.instances_http import InstancesAdmin
from scopekv.gateway.revocation import Revoker
from scopekv.gateway.waiting import WaitingRoom
from scopekv.ports import Tallies

CONSOLE = "/console"
CONSOLE_PLACES = 8  # pages wait for instances as well as for the threads that all share
WAIT_SECONDS = 5  # for instances to confirm a purge, before its receipt is shown as it is


@dataclass(frozen=True, slots=True, repr=False)
class Parts:
    """The gateway's parts that pages show or act through. The console has no rights of its own.

    `room`: of the engines, as a page shows it. `turns`: the pages' own. `clock`: Unix seconds.
    """

    access: Access
    administration: Administration
    revoker: Revoker
    explainer: Explainer
    recents: Recents
    fleet: Fleet
    instances: InstancesAdmin
    room: WaitingRoom
    turns: WaitingRoom
    tallies: Tallies
    audits: Path
    clock: Callable[[], float] = time.time


@dataclass(frozen=True, slots=True, repr=False)
class Visit:
    """One request of somebody who is logged in. `form`: fields of a POST, else empty."""

    request: Request
    principal: Principal
    session: Session
    language: Language
    query: Mapping[str, str]
    form: Mapping[str, str]
    where: Sequence[str]  # what of the path the route left open

    @property
    def operator(self) -> bool:
        return Role.OPERATOR in self.principal.roles

    @property
    def org_admin(self) -> bool:
        return Role.ORG_ADMIN in self.principal.roles

    @property
    def publishes(self) -> bool:
        return bool({Role.OPERATOR, Role.ORG_ADMIN, Role.PUBLISHER} & self.principal.roles)

    def only(self, allowed: bool) -> None:
        """A page that is not for this caller is not there (L10). Raises `NotFound`."""
        if not allowed:
            raise NotFound("there is no such page")

    def field(self, name: str) -> str:
        """A form's field without blanks around it; empty where it is missing."""
        return self.form.get(name, "").strip()


@dataclass(frozen=True, slots=True)
class Page:
    """A template and what it shows."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    headers: Headers = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Redirect:
    """Where a form leads once it is done (303)."""

    to: str


@dataclass(frozen=True, slots=True)
class File:
    """A file as it is."""

    content: bytes
    kind: str
    policy: str  # its Content-Security-Policy


Answer = Page | Redirect | File
