"""Addresses as people paste them, wherever one is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from scopekv.audit.endpoint import Endpoint
from scopekv.gateway.addresses import server_root
from scopekv.gateway.settings_file import read_settings

HOST, PROXY = "http://host:8000", "https://host/proxy"
GIVEN = [
    *((f"{HOST}{tail}", HOST) for tail in ("", "/", "//", "/v1", "/v1/", "//v1//")),
    *((f"{PROXY}{tail}", PROXY) for tail in ("", "/", "/v1", "/v1/")),
    (f"{HOST}/v1/chat/completions", HOST),
    (f"{PROXY}/v1/messages/", PROXY),
    (f"{HOST}/v1/models", HOST),
    *((kept, kept) for kept in ("http://v1", f"{HOST}/v2", f"{HOST}/av1", f"{HOST}/v1/odd")),
    ("http://v1/v1", "http://v1"),
    ("http://", "http://"),
    ("", ""),
]


@pytest.mark.parametrize(("given", "root"), GIVEN)
def test_the_root_is_found(given: str, root: str) -> None:
    assert server_root(given) == root
    assert server_root(root) == root


@pytest.mark.parametrize("tail", ["", "/v1", "/v1/"])
async def test_every_place_takes_an_address_with_its_tail(tmp_path: Path, tail: str) -> None:
    file = tmp_path / "scopekv.toml"
    file.write_text(
        f'[[instances]]\nname = "e"\nurl = "{HOST}{tail}"\n'
        f'[[upstreams]]\nname = "u"\nkind = "openai"\nbase_url = "{PROXY}{tail}"\n'
        'models = ["m"]\napi_key = "k"\n'
    )
    settings = read_settings(file)
    assert [one.url for one in settings.instances] == [HOST]
    assert [one.base_url for one in settings.upstreams] == [PROXY]
    async with Endpoint(f"{PROXY}{tail}") as endpoint:
        assert endpoint.url == PROXY
