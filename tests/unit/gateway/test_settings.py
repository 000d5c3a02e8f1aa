"""The gateway's settings: what cannot work is refused, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from scopekv.errors import ConfigError
from scopekv.gateway.http import ClientPool
from scopekv.gateway.settings import GatewaySettings
from scopekv.gateway.settings_file import read_settings
from scopekv.store.scope_keys import Retention

ENGINE = '[[instances]]\nname = "e"\nurl = "http://h:1"\n'
OIDC = '[oidc]\nissuer = "https://login.example.com"\naudience = "scopekv"\norganisation = "acme"\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "instances"),
        ("instances = []", "instances"),
        ("stop_seconds_max = nan\n" + ENGINE, "stop_seconds_max"),
        ("stop_seconds_max = -5.0\n" + ENGINE, "stop_seconds_max"),
        ("port = 70000\n" + ENGINE, "port"),
        ("made_up = 1\n" + ENGINE, "made_up"),
        (ENGINE + 'api_key = "a\\nb"\n', "api_key"),
        (ENGINE + ENGINE, "share a name"),
        ("port = ", "Invalid value"),
        (ENGINE + "[retention]\nsession = 5\n", "session"),
        (ENGINE + "[retention]\nsesion = 500\n", "sesion"),
        (ENGINE + OIDC.replace("https:", "http:"), "issuer"),
        (ENGINE + OIDC + 'organisation_claim = "org"\n', "one of organisation"),
        (ENGINE + OIDC + 'algorithms = ["HS256"]\n', "HS256"),
        (ENGINE + OIDC + 'provision = "everything"\n', "everything"),
        (ENGINE + OIDC + "leeway = 5\n", "leeway"),
        (ENGINE + OIDC + 'roles_claim = "r"\nroles = { a = "operator" }\n', "operator"),
        (ENGINE + OIDC + "keys_seconds_max = 20.0\n", "keys_seconds_max"),
        (ENGINE + '[vault]\nkey = "k"\n', "address"),
        (ENGINE + '[vault]\naddress = "https://v"\nkey = "a/b"\n', "key"),
    ],
)
def test_a_file_that_cannot_work_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "scopekv.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named):
        read_settings(path)


@pytest.mark.parametrize("url", ["http://h:99999", "http://h:abc", "http://[::1", "http://hé", ""])
async def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        ClientPool(url)


def test_retention_and_vault_are_read(tmp_path: Path) -> None:
    path = tmp_path / "scopekv.toml"
    path.write_text(
        ENGINE
        + "[retention]\nsession = 600\ndocument = 3600\n"
        + '[vault]\naddress = "https://v:8200"\nca_file = "ca.pem"\ntoken_file = "/run/token"\n'
    )
    settings = read_settings(path)
    assert settings.retention == Retention(session=600, document=3600)
    assert settings.vault is not None
    assert settings.vault.ca_file == tmp_path / "ca.pem"
    assert settings.vault.token_file == Path("/run/token")


def test_an_identity_provider_is_read(tmp_path: Path) -> None:
    path = tmp_path / "scopekv.toml"
    path.write_text(
        ENGINE + OIDC + 'ca_file = "ca.pem"\nprovision = "users"\nalgorithms = ["PS256"]\n'
        'roles_claim = "/realm_access/roles"\nroles = { kv = "publisher" }\n'
    )
    oidc = read_settings(path).oidc
    assert oidc is not None
    assert oidc.provider.ca_file == tmp_path / "ca.pem"
    assert oidc.provider.algorithms == ("PS256",)
    assert oidc.identity.provision == "users"
    assert oidc.identity.rules.roles == {"kv": "publisher"}
    assert oidc.identity.rules.user_claim == "sub"
    path.write_text(ENGINE)
    assert read_settings(path).oidc is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:8080"),  # noqa: S104 - nothing is bound
        ("::", "http://[::1]:8080"),
        ("fd00::7", "http://[fd00::7]:8080"),
        ("gateway", "http://gateway:8080"),
    ],
)
def test_where_it_listens_is_reached_from_here(host: str, url: str) -> None:
    assert GatewaySettings((), host=host).own_url == url
