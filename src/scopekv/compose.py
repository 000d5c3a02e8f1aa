"""The one file that names concrete adapters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scopekv.adapters.ed25519 import TicketSigner, write_public_keys
from scopekv.adapters.registry import open_registry
from scopekv.adapters.root_key import RootKey, load_or_create
from scopekv.ports import Registry

__all__ = ["World", "open_registry", "open_world"]

ROOT_KEY = "keys/root.key"
TICKET_KEYS = "keys/ticket-keys.json"


@dataclass(frozen=True, slots=True, repr=False)
class World:
    """What a gateway needs of the world: the registry and the deployment's keys.

    `registry_is_remote`: its calls cross a network and belong on a worker thread.
    `ticket_keys`: the public key list that engines read.
    """

    registry: Registry
    registry_is_remote: bool
    signer: TicketSigner
    scope_secret: bytes
    ticket_keys: Path


def open_world(data_dir: Path, registry_url: str) -> World:
    """Open the registry and the keys; make what is missing. Raises `ConfigError`."""
    root = load_or_create(data_dir / ROOT_KEY)
    signer = _signer(root)
    ticket_keys = data_dir / TICKET_KEYS
    write_public_keys(ticket_keys, [signer.public_key])
    return World(
        open_registry(registry_url),
        not registry_url.startswith("sqlite"),
        signer,
        root.derive("scope names"),
        ticket_keys,
    )


def _signer(root: RootKey) -> TicketSigner:
    return TicketSigner(root.derive("ticket signing 1"))
