"""A small identity provider on a loopback port: discovery, keys, and tokens as one asks for."""

from __future__ import annotations

import base64
import functools
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

AUDIENCE = "scopekv"
Private = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey


@functools.cache
def private_key(kind: str, number: int = 0) -> Private:
    """A key of this kind, made once a run: `rsa`, `rsa1024`, `ec`."""
    if kind == "ec":
        return ec.generate_private_key(ec.SECP256R1())
    return rsa.generate_private_key(65537, 1024 if kind == "rsa1024" else 2048)


class IdentityProvider:
    """Use as a context manager. `jwks`, `discovery`, `status` may be changed while it runs."""

    def __init__(self) -> None:
        self.keys: dict[str, Private] = {"one": private_key("rsa"), "two": private_key("ec")}
        self.status = 200
        self.calls: list[str] = []
        self.go_on = threading.Event()  # cleared: answers wait
        self.go_on.set()
        self.documents: dict[str, Any] = {}  # instead of what it would say, by path
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.calls.append(self.path)
                provider.go_on.wait(20)
                body = json.dumps(provider.document(self.path)).encode()
                self.send_response(provider.status)
                if provider.status == 302:
                    self.send_header("location", f"{provider.issuer}/keys")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.issuer = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def document(self, path: str) -> Any:
        if path in self.documents:
            return self.documents[path]
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.issuer, "jwks_uri": f"{self.issuer}/keys"}
        return {"keys": [jwk(kid, key) for kid, key in self.keys.items()]}

    def token(self, kid: str = "one", *, head: dict[str, Any] | None = None, **claims: Any) -> str:
        """A good token of alice of acme, but for what is given; None leaves a claim out."""
        now = int(time.time())
        all_claims = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "alice",
            "org": "acme",
            "iat": now,
            "exp": now + 600,
        } | claims
        body = {name: value for name, value in all_claims.items() if value is not None}
        key = self.keys[kid]
        algorithm = "ES256" if isinstance(key, ec.EllipticCurvePrivateKey) else "RS256"
        return signed({"alg": algorithm, "kid": kid, "typ": "JWT"} | (head or {}), body, key)


def signed(head: dict[str, Any], claims: Any, key: Private) -> str:
    """A token of this head and these claims, signed as the key's kind is, whatever `alg` says."""
    message = f"{b64(json.dumps(head).encode())}.{b64(json.dumps(claims).encode())}".encode()
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(message, ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    else:
        signature = key.sign(message, padding.PKCS1v15(), hashes.SHA256())
    return f"{message.decode()}.{b64(signature)}"


def jwk(kid: str, key: Private, **more: Any) -> dict[str, Any]:
    """The public half, as a provider lists it."""
    if isinstance(key, ec.EllipticCurvePrivateKey):
        point = key.public_key().public_numbers()
        parts = {"kty": "EC", "crv": "P-256", "x": number(point.x), "y": number(point.y)}
    else:
        both = key.public_key().public_numbers()
        parts = {"kty": "RSA", "n": number(both.n), "e": number(both.e)}
    return {"kid": kid, "use": "sig", **parts} | more


def number(value: int) -> str:
    return b64(value.to_bytes((value.bit_length() + 7) // 8, "big"))


def b64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
