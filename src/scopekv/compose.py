"""The one file that names concrete adapters."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from scopekv.adapters.ed25519 import KeyFile, TicketSigner, write_public_keys
from scopekv.adapters.kv_events import KVEventSubscriber
from scopekv.adapters.moving_key import MovingKeyWrapper
from scopekv.adapters.oidc import OidcVerifier, ProviderSettings
from scopekv.adapters.registry import open_registry
from scopekv.adapters.root_key import FileKeyWrapper, RootKey, load_or_create, make_secret
from scopekv.adapters.tallies import SqliteTallies
from scopekv.adapters.tracing import TracingSettings, open_tracer
from scopekv.adapters.vault import VaultKeyWrapper, VaultSettings
from scopekv.core.tickets import Check, KeyId
from scopekv.errors import Unavailable
from scopekv.ports import KeyWrapper, Registry, Tallies
from scopekv.ports.tracing import NoTracer, Tracer

__all__ = [
    "KVEventSubscriber",
    "OidcVerifier",
    "ProviderSettings",
    "TracingSettings",
    "VaultSettings",
    "World",
    "make_keys",
    "open_registry",
    "open_tracer",
    "open_world",
    "open_wrapper",
]

ROOT_KEY = "keys/root.key"
WRAP_KEY = "keys/wrap.key"
INSTANCE_KEY = "keys/instance.key"
TICKET_KEYS = "keys/ticket-keys.json"
TALLIES = "tallies.db"
AUDITS = "audits"
VAULT_TOKEN = "VAULT_TOKEN"  # noqa: S105 - the name of a variable
log = logging.getLogger("scopekv.keys")


@dataclass(frozen=True, slots=True, repr=False)
class World:
    """What a gateway needs of the world: the registry and the deployment's keys.

    `registry_is_remote`: its calls cross a network and belong on a worker thread.
    `ticket_keys`: the public key list that engines read. `wrapper`: the root key that wraps scope
    keys. `instance_secret_path`: the secret by which engines ask for leases.
    """

    registry: Registry
    registry_is_remote: bool
    signer: TicketSigner
    scope_secret: bytes
    ticket_keys: Path
    ticket_checks: Mapping[KeyId, Check]
    wrapper: KeyWrapper
    instance_secret: str
    instance_secret_path: Path
    tallies: Tallies
    audits: Path
    tracer: Tracer = field(default_factory=NoTracer)


def open_world(
    data_dir: Path,
    registry_url: str,
    vault: VaultSettings | None = None,
    tracing: TracingSettings | None = None,
) -> World:
    """Open the registry and the keys; make what is missing. Raises `ConfigError`.

    Scope keys are wrapped by Vault where it is named, else by the file `keys/wrap.key`.
    """
    root, signer = _root_and_signer(data_dir)
    ticket_keys = data_dir / TICKET_KEYS
    wrapper = open_wrapper(data_dir, vault)
    secret_path = data_dir / INSTANCE_KEY
    secret = make_secret(secret_path)
    return World(
        open_registry(registry_url),
        not registry_url.startswith("sqlite"),
        signer,
        root.derive("scope names"),
        ticket_keys,
        KeyFile(ticket_keys),
        wrapper,
        secret,
        secret_path,
        SqliteTallies(data_dir / TALLIES),
        data_dir / AUDITS,
        open_tracer(tracing or TracingSettings()),
    )


def open_wrapper(data_dir: Path, vault: VaultSettings | None) -> KeyWrapper:
    """The root key that wraps scope keys. Raises `ConfigError`; a Vault out of reach is no error.

    Requests are served without it, and nothing new is kept beyond engine memory meanwhile.
    """
    file = data_dir / WRAP_KEY
    if vault is None:
        return FileKeyWrapper(file)
    wrapper = VaultKeyWrapper(vault, environment_token=os.environ.get(VAULT_TOKEN, ""))
    try:
        wrapper.check()
    except Unavailable as error:
        log.warning("%s", error)
    return MovingKeyWrapper(wrapper, FileKeyWrapper(file)) if file.exists() else wrapper


def make_keys(data_dir: Path) -> None:
    """Make the key files of a deployment that are missing. Raises `ConfigError`."""
    _root_and_signer(data_dir)
    FileKeyWrapper(data_dir / WRAP_KEY)
    make_secret(data_dir / INSTANCE_KEY)


def _root_and_signer(data_dir: Path) -> tuple[RootKey, TicketSigner]:
    """The root key and what signs, with the list of public keys written."""
    root = load_or_create(data_dir / ROOT_KEY)
    signer = _signer(root)
    write_public_keys(data_dir / TICKET_KEYS, [signer.public_key])
    return root, signer


def _signer(root: RootKey) -> TicketSigner:
    return TicketSigner(root.derive("ticket signing 1"))
