"""An OpenID Connect provider: its public keys over HTTP, and signatures made with them.

PyJWT verifies signatures and reads keys; what the claims mean is `core.identity`'s. Keys come from
the configured list alone: the headers `jku`, `jwk` and `x5u` of a token are never looked at.
OpenID Connect Discovery 1.0; RFC 7515, 7517, 7518; RFC 8725.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from scopekv.adapters.json_http import JsonHttp
from scopekv.core.identity import IdentityReason, TokenRefused
from scopekv.errors import ConfigError, Unavailable
from scopekv.ports import SigningKey

if TYPE_CHECKING:
    from jwt import PyJWK

TOKEN_BYTES_MAX = 16 << 10
KEYS_MAX = 100
URL_CHARS_MAX = 1024
KEY_ID_CHARS_MAX = 256
RSA_BITS_MIN, RSA_BITS_MAX = 2048, 8192  # longer ones cost an event loop's time
DISCOVERY = "/.well-known/openid-configuration"
# Asymmetric only: with HMAC, who can verify can sign; `none` is no signature.
ALGORITHMS: dict[str, tuple[str, str | None]] = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), ("RSA", None)),
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
}
_TYPES = (None, "jwt", "at+jwt", "application/at+jwt", "application/jwt")
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """Where a provider's keys are. Without `jwks_url`, its discovery document says so."""

    issuer: str
    jwks_url: str = ""
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    ca_file: Path | None = None
    timeout_seconds: float = 5.0

    def __post_init__(self) -> None:
        check_address(self.issuer, "issuer")
        if self.jwks_url:
            check_address(self.jwks_url, "jwks_url")
        unknown = [name for name in self.algorithms if name not in ALGORITHMS]
        if unknown or not self.algorithms:
            raise ConfigError(
                f"[oidc] algorithms has {', '.join(unknown)[:80] or 'no entry'}; it takes "
                f"{', '.join(ALGORITHMS)}"
            )
        if not 0 < self.timeout_seconds <= 30:
            raise ConfigError(f"[oidc] timeout_seconds is {self.timeout_seconds}; it takes 0 to 30")


def check_address(url: str, what: str) -> None:
    """`ConfigError` unless keys that come from here can be trusted: TLS, or this machine."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        raise ConfigError(f"[oidc] {what} is no URL") from None
    if not url.isascii() or not url.isprintable() or " " in url or len(url) > URL_CHARS_MAX:
        raise ConfigError(f"[oidc] {what} is no URL of at most {URL_CHARS_MAX} ASCII characters")
    secure = parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)
    if not secure or not host or parts.username or parts.fragment:
        raise ConfigError(
            f"[oidc] {what} is {url[:200]!r}; it must be an https:// address without a user "
            "(http:// only on this machine)"
        )


class OidcVerifier:
    """`ports.TokenVerifier`. Thread-safe."""

    def __init__(self, settings: ProviderSettings) -> None:
        """Nothing is fetched yet. `ConfigError` where PyJWT is missing."""
        try:
            import jwt
        except ImportError as error:
            raise ConfigError("[oidc] needs PyJWT: pip install 'scopekv[oidc]'") from error
        self._settings = settings
        self._jwt = jwt
        self._jws = jwt.PyJWS(algorithms=list(settings.algorithms))

    def fetch(self) -> Mapping[tuple[str, str], SigningKey]:
        """One or two calls, `timeout_seconds` each. Redirects are not followed."""
        url = self._settings.jwks_url or self._discover()
        listed = self._get(url, "keys").get("keys")
        if not isinstance(listed, list) or len(listed) > KEYS_MAX:
            raise Unavailable(f"the identity provider's keys are no list of at most {KEYS_MAX}")
        found: dict[tuple[str, str], SigningKey] = {}
        twice: set[tuple[str, str]] = set()
        for jwk in listed:
            for name, key in self._read(jwk):
                if name in found:
                    twice.add(name)
                found[name] = key
        return {name: key for name, key in found.items() if name not in twice}

    def head(self, token: bytes) -> tuple[str, str]:
        """Before anything is verified, so nothing is trusted but the choice of a key."""
        if len(token) > TOKEN_BYTES_MAX or token.count(b".") != 2:
            raise TokenRefused(IdentityReason.MALFORMED)
        try:
            header = self._jwt.get_unverified_header(token)
        except (self._jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenRefused(IdentityReason.MALFORMED) from error
        kid, algorithm, kind = header.get("kid"), header.get("alg"), header.get("typ")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms:
            raise TokenRefused(IdentityReason.ALGORITHM)
        if not isinstance(kid, str) or not 1 <= len(kid) <= KEY_ID_CHARS_MAX:
            raise TokenRefused(IdentityReason.UNKNOWN_KEY)
        if "crit" in header or "b64" in header:  # extensions that we do not know
            raise TokenRefused(IdentityReason.MALFORMED)
        if (kind.lower() if isinstance(kind, str) else kind) not in _TYPES:
            raise TokenRefused(IdentityReason.MALFORMED)  # a logout token, say (RFC 8725, 3.11)
        return kid, algorithm

    def claims(self, token: bytes, key: SigningKey) -> Mapping[str, Any]:
        jwk: Any = key
        try:
            payload = self._jws.decode_complete(token, jwk, [jwk.algorithm_name])["payload"]
        except (self._jwt.PyJWTError, ValueError, TypeError) as error:
            raise TokenRefused(IdentityReason.BAD_SIGNATURE) from error
        try:
            claims = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise TokenRefused(IdentityReason.MALFORMED) from error
        if not isinstance(claims, dict):
            raise TokenRefused(IdentityReason.MALFORMED)
        return claims

    def _discover(self) -> str:
        """The address of the keys. The document must be of this issuer (Discovery 1.0, 4.3)."""
        issuer = self._settings.issuer
        document = self._get(issuer.rstrip("/") + DISCOVERY, "discovery document")
        url = document.get("jwks_uri")
        if document.get("issuer") != issuer or not isinstance(url, str):
            raise Unavailable("the identity provider's discovery document is not of this issuer")
        try:
            check_address(url, "jwks_uri of the discovery document")
        except ConfigError as error:
            raise Unavailable(str(error)) from error
        return url

    def _get(self, url: str, what: str) -> dict[str, Any]:
        parts = urlsplit(url)
        http = JsonHttp(
            f"{parts.scheme}://{parts.netloc}",
            what=f"the identity provider ({what})",
            ca_file=self._settings.ca_file,
            timeout_seconds=self._settings.timeout_seconds,
        )
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            status, content = http.call("GET", path, {"Accept": "application/json"}, None)
        finally:
            http.close()
        if status != 200:
            raise Unavailable(f"the identity provider's {what} answers {status}")
        return content

    def _read(self, jwk: Any) -> list[tuple[tuple[str, str], SigningKey]]:
        """The names and values under which a key can be used; none for one that is of no use."""
        if not isinstance(jwk, dict) or jwk.get("use", "sig") != "sig":
            return []
        kid, named, operations = jwk.get("kid"), jwk.get("alg"), jwk.get("key_ops", ["verify"])
        if not isinstance(kid, str) or not 1 <= len(kid) <= KEY_ID_CHARS_MAX:
            return []
        if not isinstance(operations, list) or "verify" not in operations:
            return []
        found = []
        for algorithm in self._settings.algorithms:
            kind, curve = ALGORITHMS[algorithm]
            fits = jwk.get("kty") == kind and (curve is None or jwk.get("crv") == curve)
            if fits and named in (None, algorithm) and (key := self._key(jwk, algorithm)):
                found.append(((kid, algorithm), SigningKey(key)))
        return found

    def _key(self, jwk: dict[str, Any], algorithm: str) -> PyJWK | None:
        public = {name: value for name, value in jwk.items() if name not in ("d", "p", "q")}
        try:
            key = self._jwt.PyJWK(public, algorithm)
            bits = key.key.key_size if jwk["kty"] == "RSA" else RSA_BITS_MIN
        except (self._jwt.PyJWTError, ValueError, TypeError, KeyError, AttributeError):
            return None
        return key if RSA_BITS_MIN <= bits <= RSA_BITS_MAX else None
