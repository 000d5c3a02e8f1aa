"""A small server that speaks Vault's transit API as its documentation and source have it.

Really encrypts (HKDF per context, AES-256-GCM), really forgets; tokens, namespaces, seal and TLS
as in Vault. No part of ScopeKV is in here.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import socket
import ssl
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

TOKEN = "hvs.the-token-that-must-not-show"
_PATH = re.compile(r"/v1/([a-z/]+)/(encrypt|decrypt|keys)/([\w.-]+)(?:/(rotate|config))?\Z")


class Refusal(Exception):
    """A status and the words of Vault's `errors`."""

    def __init__(self, status: int, *errors: str) -> None:
        super().__init__(status)
        self.status, self.errors = status, errors


@dataclass
class TransitKey:
    derived: bool = True
    versions: list[bytes] = field(default_factory=lambda: [os.urandom(32)])
    min_decryption_version: int = 1
    min_encryption_version: int = 0

    def cipher(self, version: int, context: bytes) -> AESGCM:
        if not self.derived:
            return AESGCM(self.versions[version - 1])
        if not context:
            raise Refusal(400, "missing 'context' for key derivation")
        hkdf = HKDF(hashes.SHA256(), 32, salt=None, info=context)
        return AESGCM(hkdf.derive(self.versions[version - 1]))


class VaultServer:
    """Use as a context manager. `keys` by "mount/name"; `sealed` and `token` may be changed."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.keys: dict[str, TransitKey] = {"transit/scopekv": TransitKey()}
        self.sealed = False
        self.token = TOKEN
        self.namespace = ""
        self.connections = 0
        self.requests: list[str] = []
        self._certificate = certificate
        self._port = 0
        self._open: set[Any] = set()
        self.start()

    @property
    def url(self) -> str:
        return f"http{'s' if self._certificate else ''}://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen; on the port it had before, if any."""
        vault = self

        class Handler(_Handler):
            server_state = vault

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._server.daemon_threads = True
        if self._certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self._certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._port = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def stop(self) -> None:
        """Stop listening and cut every connection."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self.cut()

    def cut(self) -> None:
        """Close the connections that clients keep, as an idle timeout does."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def answer(self, method: str, path: str, headers: Any, body: dict[str, Any]) -> dict[str, Any]:
        self.requests.append(f"{method} {path}")
        if self.sealed:
            raise Refusal(503, "Vault is sealed")
        if headers.get("X-Vault-Token") != self.token:
            raise Refusal(403, "permission denied")
        found = _PATH.match(path)
        if found is None or headers.get("X-Vault-Namespace", "") != self.namespace:
            raise Refusal(404, "no handler for route")
        mount, verb, name, act = found.groups()
        key = self.keys.get(f"{mount}/{name}")
        if key is None:
            raise Refusal(404) if verb == "keys" else Refusal(400, "encryption key not found")
        if verb == "keys":
            return _administer(key, name, method, act, body)
        context = base64.b64decode(body.get("context", ""))
        return _encrypt(key, context, body) if verb == "encrypt" else _decrypt(key, context, body)


def _administer(
    key: TransitKey, name: str, method: str, act: str | None, body: dict[str, Any]
) -> dict[str, Any]:
    if (method, act) == ("POST", "rotate"):
        key.versions.append(os.urandom(32))
    elif (method, act) == ("POST", "config"):
        key.min_decryption_version = body.get("min_decryption_version", key.min_decryption_version)
        key.min_encryption_version = body.get("min_encryption_version", key.min_encryption_version)
    elif (method, act) != ("GET", None):
        raise Refusal(405, "unsupported operation")
    return {
        "name": name,
        "type": "aes256-gcm96",
        "derived": key.derived,
        "latest_version": len(key.versions),
        "min_decryption_version": key.min_decryption_version,
        "min_encryption_version": key.min_encryption_version,
    }


def _encrypt(key: TransitKey, context: bytes, body: dict[str, Any]) -> dict[str, Any]:
    version, nonce = len(key.versions), os.urandom(12)
    plaintext = base64.b64decode(body["plaintext"])
    sealed = nonce + key.cipher(version, context).encrypt(nonce, plaintext, None)
    text = f"vault:v{version}:{base64.b64encode(sealed).decode()}"
    return {"ciphertext": text, "key_version": version}


def _decrypt(key: TransitKey, context: bytes, body: dict[str, Any]) -> dict[str, Any]:
    found = re.match(r"vault:v([0-9]+):(.*)\Z", body["ciphertext"])
    if found is None:
        raise Refusal(400, "invalid ciphertext: no prefix")
    version = int(found[1])
    if version > len(key.versions) or version < 1:
        raise Refusal(400, "invalid ciphertext: version is too new")
    if version < key.min_decryption_version:
        raise Refusal(400, "ciphertext or signature version is disallowed by policy (too old)")
    try:
        sealed = base64.b64decode(found[2], validate=True)
        plaintext = key.cipher(version, context).decrypt(sealed[:12], sealed[12:], None)
    except (ValueError, InvalidTag):
        raise Refusal(400, "invalid ciphertext: unable to decrypt") from None
    return {"plaintext": base64.b64encode(plaintext).decode()}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or an answer waits 40 ms between head and body
    server_state: VaultServer

    def setup(self) -> None:
        super().setup()
        self.server_state.connections += 1
        self.server_state._open.add(self.connection)

    def do_POST(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def _serve(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer: dict[str, Any]
        try:
            body = json.loads(data) if data else {}
            found = self.server_state.answer(self.command, self.path, self.headers, body)
            status, answer = 200, {"request_id": "r", "renewable": False, "data": found}
        except Refusal as refusal:
            status, answer = refusal.status, {"errors": list(refusal.errors)}
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Silent: the standard library would write to stderr."""

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, ValueError):
            self.close_connection = True  # cut by a test
