"""Pages show what engines tell, whole or not, and escape every word of it."""

from __future__ import annotations

from typing import Any

from scopekv.console import render
from scopekv.console.languages import Code, Language
from scopekv.console.parts import Visit
from scopekv.console.sessions import Session
from scopekv.core.scopes import Principal
from scopekv.gateway.http.messages import Request

HOSTILE = "<img src=x onerror=alert(1)>'\"&"


def rendered(template: str, code: Code = Code.ENGLISH, **values: Any) -> str:
    who = Principal("hq", HOSTILE, "org_1", "usr_1", roles=frozenset({"operator"}))
    session, language = Session("id", b"", 0.0, 0.0), Language(code)
    request = Request("GET", "/console", "", [], b"")
    visit = Visit(request, who, session, language, {}, {}, ())
    page = render.page(template, values, language=language, path="/console", visit=visit)
    return page.decode()


def instance(tiers: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "name": "gpu-0", "state": "resting", "isolation": "scoped", "models": [HOSTILE],
        "reason": HOSTILE, "in_flight": 3, "waiting": 2, "decoding": 1, "of_other_gateways": 0,
        "prefill_tokens_per_second": None, "tiers": tiers,
    }  # fmt: skip


def test_tiers_are_shown_with_what_each_tells() -> None:
    told = {
        "age": 2.0,
        "pending": 0,
        "tiers": {
            "host": {"blocks": 1234, "blocks_max": 8000, "block_bytes": 737280},
            "directory": {"hits": 5678, "misses": 9, "stored": 77, "speed": {"samples": 1}},
            HOSTILE: {},
        },
    }
    for code in Code:
        page = rendered(
            "instances.html.j2",
            code,
            instances=[instance(told), instance(None), instance({**told, "tiers": {}})],
            queue={"waiting": 0, "taken": 1, "places": 512},
            counts=("hits", "misses", "stored"),
        )
        assert "1,234 / 8,000" in page
        assert "5,678" in page
        assert "<img" not in page
        assert page.count("&lt;img") >= 4


def test_causes_are_shown_as_text() -> None:
    cause = {
        "code": "time", "certainty": "suspected", "path": HOSTILE, "token": 1, "tokens_lost": 2,
        "seconds_lost": None, "fix": "x", "before": HOSTILE, "after": None,
    }  # fmt: skip
    told = {
        "prompt_tokens": 3, "common_tokens": 1, "expected_tokens": 0, "cached_tokens": None,
        "causes": [cause], "compared_with": None,
    }  # fmt: skip
    row = {"id": HOSTILE, "at": 0.0, "path": "/v1/messages", "instance": HOSTILE}
    page = rendered("request.html.j2", told=told, row=row)
    assert "<img" not in page
    assert "no earlier request of yours" in page
    assert "suspected" in page


def test_a_notice_is_text_and_shown_once() -> None:
    session = Session("id", b"", 0.0, 0.0, notice=HOSTILE)
    assert session.take_notice() == HOSTILE
    page = rendered("error.html.j2", status=404, message=HOSTILE)
    assert "<img" not in page
