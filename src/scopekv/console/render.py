"""Pages and their headers: markup escaped, no script, nothing from elsewhere, nothing kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2

from scopekv.console import languages
from scopekv.console.languages import NAMES, Code, Language
from scopekv.console.parts import CONSOLE, Visit
from scopekv.gateway.http.messages import Headers

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
STYLE = f"{CONSOLE}/console.css"


def headers(kind: str, policy: str = POLICY) -> Headers:
    """What every answer of the console carries."""
    return [
        (b"content-type", kind.encode()),
        (b"content-security-policy", policy.encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"referrer-policy", b"same-origin"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"x-frame-options", b"DENY"),
    ]


@cache
def _environment() -> jinja2.Environment:
    """Templates are compiled once a process; what they show is given with each page."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("scopekv.console", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(number=languages.number, percent=languages.percent, moment=languages.moment)
    return made


@cache
def style() -> bytes:
    return files("scopekv.console").joinpath("console.css").read_bytes()


def page(
    template: str,
    values: Mapping[str, Any],
    *,
    language: Language,
    path: str,
    visit: Visit | None = None,
) -> bytes:
    """One page. `path`: where it is, for the switch of languages; without its query."""
    shown = {
        "_": language.text,
        "word": language.word,
        "fix": language.fix,
        "seconds": language.seconds,
        "language": language.code.value,
        "languages": [(code.value, NAMES[code], code is language.code) for code in Code],
        "path": path,
        "at": CONSOLE,
        "style": STYLE,
        "visit": visit,
        "notice": visit.session.take_notice() if visit is not None else "",
        **values,
    }
    return _environment().get_template(template).render(shown).encode()
