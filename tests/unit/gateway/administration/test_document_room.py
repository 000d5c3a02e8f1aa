"""What one organisation's documents may take of every gateway (L11)."""

from __future__ import annotations

import pytest

from scopekv.errors import TooLarge
from scopekv.gateway.administration import LOCAL_OPERATOR, documents
from tests.unit.gateway.administration.conftest import World


def publish(world: World, name: str, text: str, *, org: str = "acme", who: str = "pat") -> str:
    caller = LOCAL_OPERATOR if who == "local" else world.who(who, org)
    audience = f"org:{org}"
    made = world.service.documents.publish(
        caller, name=name, audience=audience, text=text, org=None
    )
    return made.id


def test_an_organisation_has_room_for_so_many_bytes_of_documents(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "ORG_BYTES_MAX", 10)
    first = publish(world, "one", "12345")
    publish(world, "two", "é67")
    with pytest.raises(TooLarge, match="has room for"):
        publish(world, "three", "xx", who="ada")
    revise, pat = world.service.documents.revise, world.who("pat")
    assert revise(pat, first, "123456").size_bytes == 6, "its own old text does not count"
    with pytest.raises(TooLarge):
        revise(pat, first, "1234567")
    assert world.service.documents.text(pat, first).text == "123456"
    publish(world, "theirs", "1234567890", org="globex")
    publish(world, "more", "an operator knows what the machines hold", who="local")
    with pytest.raises(TooLarge):
        publish(world, "three", "x")
    world.service.documents.withdraw(LOCAL_OPERATOR, "acme/more")
    world.service.documents.withdraw(pat, first)
    publish(world, "three", "12345")


def test_and_for_so_many_documents(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "ORG_DOCUMENTS_MAX", 2)
    first = publish(world, "one", "1")
    publish(world, "two", "2")
    with pytest.raises(TooLarge):
        publish(world, "three", "3")
    world.service.documents.revise(world.who("pat"), first, "11")
