"""Two organisations, a user in each, one public document: what `scopekv up --demo` shows."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import cast

import msgspec

from scopekv.errors import Conflict
from scopekv.gateway.administration import Administration
from scopekv.gateway.administration.gate import LOCAL_OPERATOR
from scopekv.gateway.administration.views import KeyView
from scopekv.ports import Registry

DOCUMENT = "lantern-manual"
LABEL = "demo"
USERS = (("acme", "alice"), ("globex", "bob"))


@dataclass(frozen=True, slots=True, repr=False)
class Demo:
    """The document's text, and a fresh key for each user (shown once, made anew each start)."""

    text: str
    keys: dict[str, str]


def document_text() -> str:
    return files("scopekv.cli.demo").joinpath("lantern-manual.md").read_text("utf-8")


def prepare(registry: Registry) -> Demo:
    """Bring the demo into the registry; a second time makes new keys and nothing else."""
    service = Administration(registry)
    text = document_text()
    with contextlib.suppress(Conflict):
        service.documents.publish(
            LOCAL_OPERATOR, name=DOCUMENT, audience="public", text=text, org=None
        )
    keys = {}
    for org, user in USERS:
        with contextlib.suppress(Conflict):
            service.orgs.create(LOCAL_OPERATOR, org)
        with contextlib.suppress(Conflict):
            service.accounts.create(LOCAL_OPERATOR, org, user, service=False)
        listed = service.keys.list(LOCAL_OPERATOR, org, owner=user, after="", limit=1000)
        for old in cast(list[KeyView], listed.data):
            if old.label == LABEL:
                service.keys.delete(LOCAL_OPERATOR, old.id)
        made = service.keys.create(LOCAL_OPERATOR, org, user, label=LABEL, expires_at=None)
        keys[user] = made.secret
    return Demo(text, keys)


def write_request(path: Path, model: str, demo: Demo) -> Path:
    """Write a chat request about the document, for `curl -d @PATH`."""
    messages = [
        {"role": "system", "content": demo.text},
        {"role": "user", "content": "What does a red light on the station mean?"},
    ]
    body = {"model": model, "messages": messages, "max_tokens": 48, "temperature": 0}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(body)) + b"\n")
    return path
