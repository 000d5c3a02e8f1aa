"""HashiCorp Vault's transit engine as the root key: `ports.KeyWrapper`.

The key never leaves Vault. It must be made with `derived=true`, so that each (scope, epoch) is
wrapped under a key of its own, derived from the context:

    vault write transit/keys/scopekv type=aes256-gcm96 derived=true

Calls (https://developer.hashicorp.com/vault/api-docs/secret/transit): encrypt, decrypt, read key,
rotate, configure key.
"""

from __future__ import annotations

import base64
import binascii
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scopekv.adapters.json_http import JsonHttp
from scopekv.errors import ConfigError, Corrupt, Unavailable

VERSION_SECONDS_MAX = 10.0  # how long another's rotation may stay unseen
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_WRAPPED_CHARS_MAX = 4096


@dataclass(frozen=True, slots=True)
class VaultSettings:
    """Where the key is. The token is read from `token_file`, else from `VAULT_TOKEN`.

    A token file is read anew for each call, so that an agent may renew it.
    """

    address: str
    key: str = "scopekv"
    mount: str = "transit"
    namespace: str = ""
    ca_file: Path | None = None
    token_file: Path | None = None
    timeout_seconds: float = 2.0

    def __post_init__(self) -> None:
        if not _NAME.match(self.key) or not all(map(_NAME.match, self.mount.split("/"))):
            raise ConfigError("[vault] key and mount are letters, digits, '.', '_' and '-'")
        if not 0 < self.timeout_seconds <= 30:
            raise ConfigError(
                f"[vault] timeout_seconds is {self.timeout_seconds}; it takes 0 to 30"
            )


class VaultKeyWrapper:
    """Wraps by calls to Vault. Thread-safe. Blocking, 1 call each, `timeout_seconds` at most."""

    def __init__(
        self,
        settings: VaultSettings,
        *,
        environment_token: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if settings.token_file is None and not environment_token.strip():
            raise ConfigError("there is no Vault token: set VAULT_TOKEN or [vault] token_file")
        self._settings, self._token = settings, environment_token
        self._monotonic = monotonic
        self._http = JsonHttp(
            settings.address,
            what="Vault",
            ca_file=settings.ca_file,
            timeout_seconds=settings.timeout_seconds,
        )
        self._lock = threading.Lock()
        self._seen: tuple[int, float] | None = None  # latest version, when it was read

    @property
    def version(self) -> str:
        """As of at most 10 seconds ago: never newer than what `wrap` uses."""
        with self._lock:
            seen = self._seen
        if seen is None or self._monotonic() - seen[1] > VERSION_SECONDS_MAX:
            seen = self._look()
        return self._name(seen[0])

    def wrap(self, key: bytes, context: bytes) -> bytes:
        answer = self._call(
            "POST",
            f"encrypt/{self._settings.key}",
            {"plaintext": _text(key), "context": _text(context)},
        )
        wrapped = answer.get("ciphertext")
        if not isinstance(wrapped, str) or not wrapped.startswith("vault:v"):
            raise Unavailable("Vault answered without a ciphertext")
        return wrapped.encode("utf-8")

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        if len(wrapped) > _WRAPPED_CHARS_MAX or not wrapped.isascii():
            raise Corrupt("a wrapped scope key is not one of Vault's")
        answer = self._call(
            "POST",
            f"decrypt/{self._settings.key}",
            {"ciphertext": wrapped.decode("ascii"), "context": _text(context)},
        )
        try:
            return base64.b64decode(str(answer.get("plaintext")), validate=True)
        except (binascii.Error, ValueError) as error:
            raise Unavailable("Vault answered without a plaintext") from error

    def rotate(self) -> str:
        self._call("POST", f"keys/{self._settings.key}/rotate", {})
        return self._name(self._look()[0])

    def retire(self) -> int:
        """Raise `min_decryption_version` to the latest."""
        key = self._call("GET", f"keys/{self._settings.key}", None)
        latest, least = _number(key, "latest_version"), _number(key, "min_decryption_version")
        if latest > least:
            change = {"min_decryption_version": latest, "min_encryption_version": latest}
            self._call("POST", f"keys/{self._settings.key}/config", change)
        return latest - least

    def check(self) -> None:
        """Refuse a key that does not derive: its contexts would bind nothing. `ConfigError`."""
        self._look()

    def close(self) -> None:
        self._http.close()

    def _look(self) -> tuple[int, float]:
        now = self._monotonic()
        key = self._call("GET", f"keys/{self._settings.key}", None)
        if key.get("derived") is not True:
            raise ConfigError(
                f"Vault's key {self._settings.key!r} was not made with derived=true; name another"
            )
        seen = (_number(key, "latest_version"), now)
        with self._lock:
            self._seen = seen
        return seen

    def _name(self, version: int) -> str:
        return f"vault:{self._settings.mount}/{self._settings.key}:v{version}"

    def _call(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        headers = {"X-Vault-Token": self._read_token(), "X-Vault-Request": "true"}
        if self._settings.namespace:
            headers["X-Vault-Namespace"] = self._settings.namespace
        status, answer = self._http.call(
            method, f"/v1/{self._settings.mount}/{path}", headers, body
        )
        if status in (200, 204):
            data = answer.get("data")
            return data if isinstance(data, dict) else {}
        if status == 400 and path.startswith("decrypt/") and not _no_key(answer):
            raise Corrupt(
                "a wrapped scope key does not open in Vault: altered, or of another scope"
            )
        raise Unavailable(f"Vault answered {status} to {path.split('/')[0]}: {_advice(status)}")

    def _read_token(self) -> str:
        token = self._token
        if self._settings.token_file is not None:
            try:
                token = self._settings.token_file.read_text()
            except (OSError, UnicodeDecodeError) as error:
                raise Unavailable(
                    f"Vault's token file {self._settings.token_file} cannot be read"
                ) from error
        token = token.strip()
        if not token or not token.isascii() or not token.isprintable():
            raise Unavailable("the Vault token is empty, or no printable ASCII")
        return token


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _number(key: dict[str, Any], name: str) -> int:
    value = key.get(name)
    if not isinstance(value, int):
        raise Unavailable(f"Vault answered without {name}")
    return value


def _no_key(answer: dict[str, Any]) -> bool:
    """Whether a 400 speaks of the key's absence, not of the ciphertext."""
    errors = answer.get("errors")
    return isinstance(errors, list) and any("not found" in str(error) for error in errors)


def _advice(status: int) -> str:
    if status in (401, 403):
        return "its token is over or may not use this key (policy: encrypt, decrypt, keys)"
    if status in (400, 404):
        return "look at the mount and the key's name, and make the key with derived=true"
    return "look at its seal and its health"
