"""`[[upstreams]]`: what cannot work is refused by name, and no key is ever in the words."""

from __future__ import annotations

from pathlib import Path

import pytest

from scopekv.errors import ConfigError
from scopekv.gateway.settings_file import read_settings

ENGINE = '[[instances]]\nname = "e"\nurl = "http://h:1"\n'
UPSTREAM = (
    ENGINE + '[[upstreams]]\nname = "u"\nkind = "openai"\nbase_url = "https://api.example.com"\n'
    'models = ["m"]\n'
)
KEY = 'api_key = "sk-secret"\n'
OWN = '[[upstreams.credentials]]\norganisations = ["acme"]\napi_key = "sk-secret"\n'


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (UPSTREAM, "no api_key"),
        (UPSTREAM.replace("https:", "http:") + KEY, "https"),
        (UPSTREAM.replace('["m"]', "[]") + KEY, "model"),
        (UPSTREAM.replace('"openai"', '"gemini"') + KEY, "gemini"),
        (UPSTREAM + KEY + 'api_key_file = "k"\n', "not both"),
        (UPSTREAM + 'api_key_file = "missing"\n', "missing"),
        (UPSTREAM + 'api_key = "sk-sécret"\n', "ASCII"),
        (UPSTREAM + 'ttl = "2h"\n' + KEY, "ttl"),
        (UPSTREAM + OWN + OWN, "one organisation"),
        (UPSTREAM + OWN.replace('["acme"]', "[]"), "no organisation"),
        (UPSTREAM + KEY + UPSTREAM.removeprefix(ENGINE) + KEY, "share a name"),
    ],
)
def test_what_cannot_work_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "scopekv.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=named) as refused:
        read_settings(path)
    assert "cret" not in str(refused.value)


def test_each_organisation_has_its_credential(tmp_path: Path) -> None:
    path = tmp_path / "scopekv.toml"
    (tmp_path / "acme.key").write_text("sk-acme\n")
    own = OWN.replace('api_key = "sk-secret"', 'api_key_file = "acme.key"')
    path.write_text(UPSTREAM + KEY + own)
    (upstream,) = read_settings(path).upstreams
    assert "sk-" not in repr(upstream)
    found = upstream.credential("acme"), upstream.credential("globex")
    assert [one.api_key for one in found if one] == ["sk-acme", "sk-secret"]
    path.write_text(UPSTREAM + own)
    (alone,) = read_settings(path).upstreams
    assert alone.credential("globex") is None
