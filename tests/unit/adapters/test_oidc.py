"""Signatures and key lists of an identity provider: what is not exactly right is refused."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from scopekv.adapters.oidc import OidcVerifier, ProviderSettings
from scopekv.core.identity import TokenRefused
from scopekv.errors import ConfigError, Unavailable
from tests.http.identity_provider import IdentityProvider, b64, jwk, number, private_key, signed

pytest.importorskip("jwt", reason="needs the oidc extra")
DISCOVERY = "/.well-known/openid-configuration"


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running


@pytest.fixture
def verifier(provider: IdentityProvider) -> OidcVerifier:
    return OidcVerifier(ProviderSettings(provider.issuer, timeout_seconds=1))


def claims(verifier: OidcVerifier, token: str | bytes) -> Any:
    data = token.encode() if isinstance(token, str) else token
    head = verifier.head(data)
    key = verifier.fetch().get(head)
    if key is None:
        return "unknown_key"
    return verifier.claims(data, key)


def reason(verifier: OidcVerifier, token: str | bytes) -> str:
    try:
        found = claims(verifier, token)
    except TokenRefused as refused:
        return str(refused.reason)
    return found if isinstance(found, str) else "good"


def test_rsa_and_ec_tokens_verify(provider: IdentityProvider, verifier: OidcVerifier) -> None:
    for kid in ("one", "two"):
        assert claims(verifier, provider.token(kid, sub="ann"))["sub"] == "ann"
    assert reason(verifier, provider.token(head={"typ": "at+JWT"})) == "good"


def test_algorithms_that_are_not_allowed(
    provider: IdentityProvider, verifier: OidcVerifier
) -> None:
    """`none` in any spelling, and HMAC keyed with the public key (RFC 8725, 3.1)."""
    head, body, signature = provider.token().split(".")
    for name in ("none", "None", "NONE", "", "HS256", "RS384", "PS256", None, 5, ["RS256"]):
        changed = b64(json.dumps({"alg": name, "kid": "one"}).encode())
        for end in ("", signature):
            assert reason(verifier, f"{changed}.{body}.{end}") == "algorithm", name
    public = (
        private_key("rsa")
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    changed = b64(b'{"alg":"HS256","kid":"one"}')
    mac = hmac.digest(public, f"{changed}.{body}".encode(), hashlib.sha256)
    assert reason(verifier, f"{changed}.{body}.{b64(mac)}") == "algorithm"
    assert head


def test_kid_confusion(provider: IdentityProvider, verifier: OidcVerifier) -> None:
    body = {"sub": "eve"}
    mine = private_key("rsa", 1)
    assert reason(verifier, signed({"alg": "RS256", "kid": "one"}, body, mine)) == "bad_signature"
    # A key of one kind under the id of the other kind.
    assert reason(verifier, signed({"alg": "RS256", "kid": "two"}, body, mine)) == "unknown_key"
    assert reason(verifier, signed({"alg": "ES256", "kid": "one"}, body, mine)) == "unknown_key"
    for kid in (None, "", 1, ["one"], "x" * 300, "../one", "one\x00"):
        token = signed({"alg": "RS256", "kid": kid}, body, mine)
        assert reason(verifier, token) in ("unknown_key", "malformed"), kid
    # Keys that a token brings along are not looked at (RFC 8725, 3.10).
    for name, value in (("jwk", jwk("one", mine)), ("jku", f"{provider.issuer}/x"), ("x5u", "u")):
        token = signed({"alg": "RS256", "kid": "one", name: value}, body, mine)
        assert reason(verifier, token) == "bad_signature"
    assert not [path for path in provider.calls if path not in (DISCOVERY, "/keys")]


def test_garbage_huge_and_altered_tokens(
    provider: IdentityProvider, verifier: OidcVerifier
) -> None:
    good = provider.token()
    head, body, signature = good.split(".")
    other = base64.urlsafe_b64encode(b'{"sub":"eve"}').decode().rstrip("=")
    assert reason(verifier, f"{head}.{other}.{signature}") == "bad_signature"
    assert reason(verifier, f"{head}.{body}.") == "bad_signature"
    for token in ("", "a", "a.b", "..", "a.b.c", "a.b.c.d", f"{good}.", "é.é.é", "\xff.\x00."):
        assert reason(verifier, token.encode()) == "malformed", token
    assert reason(verifier, provider.token(fill="x" * 20_000)) == "malformed"
    for header in (b"[]", b"null", b"{", b'{"alg":1e999}', b"[" * 9000, b"1" * 5000):
        assert reason(verifier, f"{b64(header)}.{body}.{signature}") in ("malformed", "algorithm")
    for more in ({"crit": ["x"], "x": 1}, {"b64": True}, {"typ": "logout+jwt"}, {"typ": 5}):
        assert reason(verifier, provider.token(head=more)) == "malformed", more
    key = private_key("rsa")
    payloads: tuple[Any, ...] = ([], "text", 5, None)
    for payload in payloads:
        assert reason(verifier, signed({"alg": "RS256", "kid": "one"}, payload, key)) == "malformed"


def test_keys_that_are_of_no_use_are_left_out(
    provider: IdentityProvider, verifier: OidcVerifier
) -> None:
    good = private_key("rsa")
    provider.documents["/keys"] = {
        "keys": [
            jwk("good", good, alg="RS256"),
            jwk("short", private_key("rsa1024")),
            jwk("long", good, n=number((1 << 8200) + 1)),
            jwk("encrypts", good, use="enc"),
            jwk("signs", good, key_ops=["sign"]),
            jwk("odd", good, key_ops="verify"),
            jwk("other", good, alg="RS512"),
            jwk("curve", private_key("ec"), crv="P-384"),
            jwk("off", private_key("ec"), x=b64(b"\x01" * 32)),
            jwk("bad", good, n="*"),
            jwk("twice", good),
            jwk("twice", private_key("rsa", 1)),
            jwk("both", good),
            jwk("both", private_key("ec")),
            {"kid": "secret", "kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
            {"kty": "RSA"},
            {"kid": ["one"], "kty": "RSA"},
            "text",
            None,
        ]
    }
    assert sorted(verifier.fetch()) == [("both", "ES256"), ("both", "RS256"), ("good", "RS256")]


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (DISCOVERY, {"issuer": "https://other", "jwks_uri": "https://other/keys"}),
        (DISCOVERY, {"jwks_uri": "http://127.0.0.1:1/keys"}),
        (DISCOVERY, {"issuer": "SELF", "jwks_uri": 5}),
        (DISCOVERY, {"issuer": "SELF", "jwks_uri": "http://keys.example.com/"}),
        (DISCOVERY, {"issuer": "SELF", "jwks_uri": "file:///etc/passwd"}),
        (DISCOVERY, {"issuer": "SELF", "jwks_uri": "https://é/"}),
        (DISCOVERY, {"issuer": "SELF", "jwks_uri": "http://127.0.0.1:99999/"}),
        (DISCOVERY, []),
        ("/keys", {}),
        ("/keys", {"keys": {}}),
        ("/keys", {"keys": [{}] * 101}),
        ("/keys", {"keys": [], "fill": "x" * (2 << 20)}),
        ("/keys", "text"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_answers_that_are_no_key_list(
    provider: IdentityProvider, verifier: OidcVerifier, path: str, document: Any
) -> None:
    if isinstance(document, dict) and document.get("issuer") == "SELF":
        document["issuer"] = provider.issuer
    provider.documents[path] = document
    with pytest.raises((Unavailable, ConfigError)):
        verifier.fetch()


def test_errors_redirects_and_silence(provider: IdentityProvider) -> None:
    verifier = OidcVerifier(ProviderSettings(provider.issuer, timeout_seconds=0.2))
    for status in (302, 404, 500):
        provider.status = status
        with pytest.raises(Unavailable, match=str(status)):
            verifier.fetch()
    provider.status = 200
    provider.go_on.clear()
    with pytest.raises(Unavailable, match="out of reach"):
        verifier.fetch()
    provider.go_on.set()
    straight = ProviderSettings(provider.issuer, f"{provider.issuer}/keys?p=a", ("ES256",))
    assert list(OidcVerifier(straight).fetch()) == [("two", "ES256")]
    assert provider.calls[-1] == "/keys?p=a"


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"issuer": "http://login.example.com"}, "issuer"),
        ({"issuer": "login.example.com"}, "issuer"),
        ({"issuer": "https://user:pw@login.example.com"}, "issuer"),
        ({"jwks_url": "ftp://h/keys"}, "jwks_url"),
        ({"algorithms": ("HS256",)}, "HS256"),
        ({"algorithms": ("none",)}, "none"),
        ({"algorithms": ()}, "algorithms"),
        ({"timeout_seconds": 0}, "timeout_seconds"),
    ],
    ids=str,
)
def test_settings_that_cannot_be_trusted(change: dict[str, Any], named: str) -> None:
    given: dict[str, Any] = {"issuer": "https://login.example.com"}
    with pytest.raises(ConfigError, match=named):
        ProviderSettings(**(given | change))
