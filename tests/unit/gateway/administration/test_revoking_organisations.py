"""What an organisation's revocation ends: also what others publish for it."""

from __future__ import annotations

from scopekv.core.scopes import Scope, ScopeKind
from scopekv.gateway.administration import LOCAL_OPERATOR
from tests.unit.gateway.administration.conftest import World


def test_documents_for_it_end_with_it_whoever_owns_them(world: World) -> None:
    def published(name: str, audience: str, org: str) -> Scope:
        made = world.service.documents.publish(
            LOCAL_OPERATOR, name=name, audience=audience, text="t", org=org
        )
        return Scope(ScopeKind.DOCUMENT, (made.id,))

    ended = [
        published("own", "public", "acme"),
        published("for-all", "org:acme", "globex"),
        published("for-a-group", "group:acme/eng", "globex"),
        published("for-one", "user:acme/mia", "globex"),
    ]
    stays = [published("theirs", "org:globex", "globex"), published("free", "public", "globex")]
    world.service.revocations.org(LOCAL_OPERATOR, "acme")
    assert [world.registry.epoch(scope) for scope in ended] == [1, 1, 1, 1]
    assert [world.registry.epoch(scope) for scope in stays] == [0, 0]
