"""Two organisations with the same names inside, and the administration service over them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.core.administration import Role
from scopekv.core.scopes import Principal
from scopekv.gateway.administration import LOCAL_OPERATOR, Administration
from scopekv.gateway.administration.views import AuditView, NewKeyView

NOW = 1_800_000_000.0


class World:
    """A registry, a service, and short ways to fill and look into them. `now` is the clock."""

    def __init__(self, registry: SqlRegistry) -> None:
        self.registry = registry
        self.now = NOW
        self.service = Administration(registry, clock=lambda: self.now)

    def fill(self) -> None:
        for org in ("acme", "globex"):
            self.service.orgs.create(LOCAL_OPERATOR, org)
            self.service.groups.create(LOCAL_OPERATOR, org, "eng")
            for name, role in (
                ("ada", Role.ORG_ADMIN),
                ("pat", Role.PUBLISHER),
                ("mia", Role.MEMBER),
                ("root", Role.OPERATOR),
            ):
                self.service.accounts.create(LOCAL_OPERATOR, org, name, service=False)
                self.service.accounts.set_role(LOCAL_OPERATOR, org, name, role, held=True)

    def who(self, name: str, org: str = "acme") -> Principal:
        with self.registry.read() as view:
            home = view.orgs.get(org)
            assert home
            account = view.accounts.get(home.uid, name)
            assert account
            return account.principal

    def publish(self, name: str, audience: str, text: str = "text") -> str:
        return self.service.documents.publish(
            LOCAL_OPERATOR, name=name, audience=audience, text=text, org=None
        ).id

    def key(self, owner: str, org: str = "acme", expires_at: float | None = None) -> NewKeyView:
        return self.service.keys.create(
            LOCAL_OPERATOR, org, owner, label="l", expires_at=expires_at
        )

    def entries(self) -> list[AuditView]:
        page = self.service.audit.list(LOCAL_OPERATOR, after=0, limit=1000)
        return [entry for entry in page.data if isinstance(entry, AuditView)]

    def last(self) -> tuple[str, str, str]:
        entry = self.entries()[-1]
        return entry.action, entry.outcome, entry.reason


@pytest.fixture(scope="session")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A registry's file with both organisations in it; tests take copies."""
    file = tmp_path_factory.mktemp("filled") / "registry.db"
    registry = open_registry(f"sqlite:///{file}")
    World(registry).fill()
    registry.close()
    return file


@pytest.fixture
def world(tmp_path: Path, filled: Path) -> Iterator[World]:
    copy = shutil.copy(filled, tmp_path / "registry.db")
    registry = open_registry(f"sqlite:///{copy}")
    yield World(registry)
    registry.close()
