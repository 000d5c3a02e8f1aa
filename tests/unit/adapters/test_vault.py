"""Vault's transit engine: what its answers mean (contract: contracts/test_key_wrappers.py)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from scopekv.adapters.vault import VaultKeyWrapper, VaultSettings
from scopekv.errors import ConfigError, Corrupt, Unavailable
from tests.contracts.certificates import make_certificate
from tests.contracts.vault_server import TOKEN, TransitKey, VaultServer

KEY, CONTEXT = b"k" * 32, b"context"


@pytest.fixture
def server() -> Iterator[VaultServer]:
    with VaultServer() as made:
        yield made


@pytest.fixture
def wrapper(server: VaultServer) -> Iterator[VaultKeyWrapper]:
    with closing(VaultKeyWrapper(VaultSettings(server.url), environment_token=TOKEN)) as made:
        yield made


def test_a_key_that_does_not_derive_is_refused(
    server: VaultServer, wrapper: VaultKeyWrapper
) -> None:
    server.keys["transit/scopekv"] = TransitKey(derived=False)
    with pytest.raises(ConfigError, match="derived=true"):
        wrapper.check()


def test_no_token_refuses_to_start(server: VaultServer) -> None:
    with pytest.raises(ConfigError, match="VAULT_TOKEN"):
        VaultKeyWrapper(VaultSettings(server.url), environment_token=" ")


@pytest.mark.parametrize(
    ("trouble", "said"),
    [("sealed", "503"), ("token", "403"), ("keys", "derived=true"), ("namespace", "404")],
)
def test_what_a_vault_cannot_do_now_is_unavailable_and_its_cause_said(
    server: VaultServer, wrapper: VaultKeyWrapper, trouble: str, said: str
) -> None:
    wrapped = wrapper.wrap(KEY, CONTEXT)
    good = getattr(server, trouble)
    setattr(server, trouble, {"sealed": True, "token": "no", "keys": {}, "namespace": "n"}[trouble])
    for call in (
        lambda: wrapper.wrap(KEY, CONTEXT),
        lambda: wrapper.unwrap(wrapped, CONTEXT),
        wrapper.check,
    ):
        with pytest.raises(Unavailable, match=said) as refusal:
            call()
        assert TOKEN not in str(refusal.value)
    setattr(server, trouble, good)
    assert wrapper.unwrap(wrapped, CONTEXT) == KEY


def test_a_token_file_is_read_anew_for_each_call(server: VaultServer, tmp_path: Path) -> None:
    file = tmp_path / "token"
    settings = VaultSettings(server.url, token_file=file)
    with closing(VaultKeyWrapper(settings, environment_token="ignored")) as wrapper:
        with pytest.raises(Unavailable, match="token file"):
            wrapper.wrap(KEY, CONTEXT)
        file.write_text(TOKEN + "\n")
        wrapped = wrapper.wrap(KEY, CONTEXT)
        server.token = "renewed"
        with pytest.raises(Unavailable, match="403"):
            wrapper.unwrap(wrapped, CONTEXT)
        file.write_text("renewed")
        assert wrapper.unwrap(wrapped, CONTEXT) == KEY
        file.write_text("two\nlines")
        with pytest.raises(Unavailable) as refusal:
            wrapper.unwrap(wrapped, CONTEXT)
        assert "lines" not in str(refusal.value)


def test_namespace_mount_and_name_go_into_the_call(server: VaultServer) -> None:
    server.namespace = "team/a"
    server.keys["crypto/transit/kv"] = TransitKey()
    settings = VaultSettings(server.url, key="kv", mount="crypto/transit", namespace="team/a")
    with closing(VaultKeyWrapper(settings, environment_token=TOKEN)) as wrapper:
        assert wrapper.unwrap(wrapper.wrap(KEY, CONTEXT), CONTEXT) == KEY
        assert wrapper.version == "vault:crypto/transit/kv:v1"


def test_connections_are_kept_and_a_stale_one_is_made_anew(
    server: VaultServer, wrapper: VaultKeyWrapper
) -> None:
    wrapped = [wrapper.wrap(KEY, CONTEXT) for _ in range(5)][-1]
    assert server.connections == 1
    server.cut()
    assert wrapper.unwrap(wrapped, CONTEXT) == KEY
    assert server.connections == 2


def test_the_version_is_looked_up_at_most_every_ten_seconds(server: VaultServer) -> None:
    now = [0.0]
    settings = VaultSettings(server.url)
    made = VaultKeyWrapper(settings, environment_token=TOKEN, monotonic=lambda: now[0])
    with closing(made) as wrapper:
        assert [wrapper.version for _ in range(3)] == ["vault:transit/scopekv:v1"] * 3
        assert len(server.requests) == 1
        server.keys["transit/scopekv"].versions.append(b"n" * 32)
        now[0] = 9.0
        assert wrapper.version.endswith("v1"), "older than what wraps: rewrapped once more"
        now[0] = 11.0
        assert wrapper.version.endswith("v2")


def test_tls_is_checked_against_the_authority_named(tmp_path: Path) -> None:
    ca, key = make_certificate(tmp_path)
    with VaultServer((ca, key)) as server:
        good = VaultSettings(server.url, ca_file=ca)
        with closing(VaultKeyWrapper(good, environment_token=TOKEN)) as wrapper:
            assert wrapper.unwrap(wrapper.wrap(KEY, CONTEXT), CONTEXT) == KEY
        strange = VaultSettings(server.url)
        with closing(VaultKeyWrapper(strange, environment_token=TOKEN)) as wrapper:
            with pytest.raises(Unavailable, match="SSLCertVerificationError"):
                wrapper.wrap(KEY, CONTEXT)
        missing = VaultSettings(server.url, ca_file=tmp_path / "none.pem")
        with pytest.raises(ConfigError, match="CA file"):
            VaultKeyWrapper(missing, environment_token=TOKEN)


@pytest.mark.parametrize(
    "bad",
    [
        {"address": "vault:8200"},
        {"address": "ftp://vault"},
        {"address": "https://user:pw@vault"},
        {"address": "https://vault:99999"},
        {"address": "https://vault", "key": "a/b"},
        {"address": "https://vault", "mount": "../sys"},
        {"address": "https://vault", "timeout_seconds": 0.0},
    ],
)
def test_settings_of_no_use_are_refused(bad: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refusal:
        VaultKeyWrapper(VaultSettings(**bad), environment_token=TOKEN)  # type: ignore[arg-type]
    assert "pw" not in str(refusal.value)


def test_a_ciphertext_of_a_retired_version_is_corrupt(
    server: VaultServer, wrapper: VaultKeyWrapper
) -> None:
    old = wrapper.wrap(KEY, CONTEXT)
    wrapper.rotate()
    wrapper.retire()
    with pytest.raises(Corrupt) as refusal:
        wrapper.unwrap(old, CONTEXT)
    assert old.decode() not in str(refusal.value)
