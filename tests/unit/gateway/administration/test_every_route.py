"""Every route of `/admin/v1`, asked by every role: who may, in one table.

    m member   p publisher   a org_admin   o operator   g org_admin of another organisation
    b operator, blocked since it was authenticated

Nothing is changed: what would be committed is undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from scopekv.core.scopes import Principal
from scopekv.gateway.admin_http import PREFIX, handle
from scopekv.gateway.admin_routes import ROUTES
from scopekv.gateway.administration import LOCAL_OPERATOR, Administration
from scopekv.ports import RegistryTransaction
from tests.unit.gateway.administration.conftest import World

NAMES = {"m": "mia", "p": "pat", "a": "ada", "o": "root", "b": "rex"}
ALL, NOBODY = "mpaog", ""
TOM = {"org": "acme", "name": "tom"}
# A row: method, path, body or query, who may.
TABLE: tuple[tuple[str, str, Any, str], ...] = (
    ("GET", "/me", "", ALL),
    ("GET", "/orgs", "", ALL),
    ("POST", "/orgs", {"name": "new"}, "o"),
    ("GET", "/orgs/acme", "", "mpao"),
    ("DELETE", "/orgs/empty", "", "o"),
    ("POST", "/orgs/acme/block", "", "o"),
    ("POST", "/orgs/acme/unblock", "", "o"),
    ("GET", "/orgs/acme/users", "", "ao"),
    ("POST", "/orgs/acme/users", {"name": "new"}, "ao"),
    ("GET", "/orgs/acme/users/tom", "", "ao"),
    ("DELETE", "/orgs/acme/users/sue", "", "ao"),
    ("POST", "/orgs/acme/users/tom/block", "", "ao"),
    ("POST", "/orgs/acme/users/root/block", "", "o"),
    ("POST", "/orgs/acme/users/tom/unblock", "", "ao"),
    ("GET", "/orgs/acme/service-accounts", "", "ao"),
    ("POST", "/orgs/acme/service-accounts", {"name": "new"}, "ao"),
    ("GET", "/orgs/acme/service-accounts/bot", "", "ao"),
    ("DELETE", "/orgs/acme/service-accounts/bot", "", "ao"),
    ("POST", "/orgs/acme/service-accounts/bot/block", "", "ao"),
    ("POST", "/orgs/acme/service-accounts/bot/unblock", "", "ao"),
    ("PUT", "/orgs/acme/users/tom/identity", {"issuer": "https://i", "subject": "s"}, "ao"),
    ("PUT", "/orgs/acme/users/root/identity", {"issuer": "https://i", "subject": "s"}, "o"),
    ("PUT", "/orgs/acme/accounts/tom/roles/publisher", "", "ao"),
    ("PUT", "/orgs/acme/accounts/tom/roles/operator", "", "o"),
    ("PUT", "/orgs/acme/accounts/tom/roles/public_publisher", "", "o"),
    ("DELETE", "/orgs/acme/accounts/tom/roles/member", "", "ao"),
    ("DELETE", "/orgs/acme/accounts/root/roles/member", "", "o"),
    ("GET", "/orgs/acme/groups", "", "ao"),
    ("POST", "/orgs/acme/groups", {"name": "new"}, "ao"),
    ("DELETE", "/orgs/acme/groups/eng", "", "ao"),
    ("PUT", "/orgs/acme/groups/eng/members/tom", "", "ao"),
    ("DELETE", "/orgs/acme/groups/eng/members/tom", "", "ao"),
    ("GET", "/keys", "", ALL),
    ("POST", "/keys", {}, ALL),
    ("GET", "/orgs/acme/keys", "", "ao"),
    ("GET", "/orgs/acme/keys", "owner=tom", "ao"),
    ("POST", "/orgs/acme/keys", {"owner": "tom"}, "ao"),
    ("POST", "/orgs/acme/keys", {"owner": "root"}, "o"),
    ("POST", "/keys/TOMS/rotate", {}, "ao"),
    ("POST", "/keys/MIAS/rotate", {}, "mao"),
    ("POST", "/keys/ROOTS/rotate", {}, "o"),
    ("POST", "/keys/MIAS/block", "", "ao"),
    ("POST", "/keys/MIAS/unblock", "", "ao"),
    ("DELETE", "/keys/TOMS", "", "ao"),
    ("DELETE", "/keys/MIAS", "", "mao"),
    ("GET", "/documents", "", ALL),
    ("POST", "/documents", {"name": "new", "audience": "org:acme", "text": "t"}, "pao"),
    ("POST", "/documents", {"name": "new", "audience": "user:acme/tom", "text": "t"}, "pao"),
    ("POST", "/documents", {"name": "new", "audience": "public", "text": "t"}, "o"),
    ("POST", "/documents", {"name": "n", "audience": "org:empty", "text": "t"}, "o"),
    ("GET", "/documents/PLANS", "", "pao"),
    ("GET", "/documents/NEWS", "", "mpao"),
    ("GET", "/documents/PLANS/text", "", "ao"),
    ("GET", "/documents/NEWS/text", "", "mpao"),
    ("POST", "/documents/PLANS/revisions", {"text": "new"}, "pao"),
    ("PUT", "/documents/PLANS/audience", {"audience": "org:acme"}, "pao"),
    ("PUT", "/documents/PLANS/audience", {"audience": "public"}, "o"),
    ("POST", "/documents/PLANS/withdraw", "", "pao"),
    ("POST", "/documents/BULLETIN/withdraw", "", "o"),
    ("GET", "/orgs/acme/rules", "", "mpao"),
    ("PUT", "/orgs/acme/rules", {"system": "user"}, "ao"),
    ("GET", "/epochs", "scope=org:acme", "ao"),
    ("GET", "/epochs", "scope=user:acme/tom", "ao"),
    ("POST", "/epochs/bump", {"scope": "org:acme"}, "ao"),
    ("POST", "/epochs/bump", {"scope": "document:PLANS"}, "ao"),
    ("POST", "/epochs/bump", {"scope": "document:BULLETIN"}, "o"),
    ("POST", "/revocations/users", TOM, "ao"),
    ("POST", "/revocations/sessions", TOM | {"session": "s"}, "ao"),
    ("POST", "/revocations/memberships", TOM | {"group": "eng"}, "ao"),
    ("POST", "/revocations/documents", {"document": "PLANS"}, "ao"),
    ("POST", "/revocations/documents", {"document": "BULLETIN"}, "o"),
    ("POST", "/revocations/orgs", {"org": "acme"}, "ao"),
    ("GET", "/receipts", "", "aog"),
    ("GET", "/receipts/RECEIPT", "", "ao"),
    ("POST", "/receipts/RECEIPT/close", {"reason": "gone"}, "o"),
    ("GET", "/audit", "", "o"),
    ("GET", "/audit/verify", "", "o"),
)


class Undone(Exception):
    """What was allowed and would have been committed."""


class Undoing:
    """A registry that keeps no change, and counts what is written down of those it refused."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.noted = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @contextmanager
    def write(self) -> Iterator[RegistryTransaction]:
        with self._inner.write() as transaction:
            yield transaction
            raise Undone

    def audit(self, **_entry: str) -> None:
        self.noted += 1


@pytest.fixture
def uids(world: World) -> dict[str, str]:
    """What paths name in capitals."""
    service = world.service
    for name in ("tom", "sue", "rex"):
        service.accounts.create(LOCAL_OPERATOR, "acme", name, service=False)
    service.accounts.set_role(LOCAL_OPERATOR, "acme", "rex", "operator", held=True)
    service.accounts.create(LOCAL_OPERATOR, "acme", "bot", service=True)
    service.orgs.create(LOCAL_OPERATOR, "empty")
    keys = {name: world.key(name).key.id for name in ("tom", "mia", "pat", "ada", "root")}
    world.key("ada", org="globex")
    return {
        "TOMS": keys["tom"],
        "MIAS": keys["mia"],
        "ROOTS": keys["root"],
        "PLANS": world.publish("plans", "user:acme/tom"),
        "NEWS": world.publish("news", "org:acme"),
        "BULLETIN": world.publish("bulletin", "public"),
        "RECEIPT": service.revocations.user(LOCAL_OPERATOR, "acme", "tom").receipt.id,
    }


def filled(text: str, uids: dict[str, str]) -> str:
    for name, uid in uids.items():
        text = text.replace(name, uid)
    return text


def test_who_may_ask_what(world: World, uids: dict[str, str]) -> None:
    registry = Undoing(world.registry)
    service = Administration(registry, clock=lambda: world.now)
    callers: dict[str, Principal] = {letter: world.who(name) for letter, name in NAMES.items()}
    callers["g"] = world.who("ada", "globex")
    world.service.accounts.set_blocked(LOCAL_OPERATOR, "acme", "rex", service=False, blocked=True)
    wrong = []
    for method, path, given, allowed in TABLE:
        query = given if isinstance(given, str) else ""
        body = b"" if isinstance(given, str) else filled(json.dumps(given), uids).encode()
        done = ""
        for letter, caller in callers.items():
            noted = registry.noted
            where = PREFIX + filled(path, uids)
            try:
                status, _ = handle(service, caller, method, where, filled(query, uids), body)
            except Undone:
                status = 200
            assert status in (200, 403, 404), (method, path, letter, status)
            done += letter if status == 200 else ""
            assert registry.noted == noted + (status != 200), "a refusal is written down"
        if sorted(done) != sorted(allowed):
            wrong.append((method, path, given, f"{done} may, not {allowed}"))
    assert not wrong


def test_the_table_holds_every_route() -> None:
    asked = {
        (route.method, route.path)
        for method, path, _, _ in TABLE
        for route in ROUTES
        if route.method == method and route.match(path.strip("/").split("/")) is not None
    }
    assert asked == {(route.method, route.path) for route in ROUTES}
