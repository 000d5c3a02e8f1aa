"""What a browser sends: cookies, queries, forms, and where a form came from."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl, urlsplit

from scopekv.console.parts import CONSOLE
from scopekv.errors import Misuse, ScopeDenied, TooLarge
from scopekv.gateway.http.messages import Request

FIELDS_MAX = 20
# A text of 4 MiB in which every byte is written as three characters, and some room.
FORM_BYTES_MAX = 13 << 20
_FORM = b"application/x-www-form-urlencoded"


def cookies(request: Request) -> Mapping[str, str]:
    """The cookies of a request; of two of one name, the first (RFC 6265: the closest path)."""
    found: dict[str, str] = {}
    for value in request.header_all(b"cookie"):
        for item in value.decode("latin-1").split(";"):
            name, _, content = item.strip().partition("=")
            found.setdefault(name, content)
    return found


def set_cookie(
    name: str, value: str, *, seconds: int, request: Request | None = None
) -> tuple[bytes, bytes]:
    """A cookie that no script reads and no other site sends. `seconds` 0: forget it.

    Secure where the proxy in front says that the browser speaks TLS: on loopback it does not.
    """
    secure = request is not None and request.header(b"x-forwarded-proto") == b"https"
    written = (
        f"{name}={value}; Path={CONSOLE}; Max-Age={seconds}; HttpOnly; SameSite=Strict"
        f"{'; Secure' if secure else ''}"
    )
    return b"set-cookie", written.encode()


def query_of(request: Request) -> Mapping[str, str]:
    return _fields(request.query)


def read_form(request: Request) -> Mapping[str, str]:
    """A form's fields, line ends as `\\n`. Raises `Misuse` or `TooLarge`."""
    kind = (request.header(b"content-type") or b"").partition(b";")[0].strip().lower()
    if kind != _FORM:
        raise Misuse(f"a form is sent as {_FORM.decode()}")
    if len(request.body) > FORM_BYTES_MAX:
        raise TooLarge(
            f"the form has {len(request.body)} bytes; the limit is {FORM_BYTES_MAX}. Use "
            "`scopekv admin document publish` for long texts"
        )
    found = _fields(request.body.decode("ascii", "replace"))
    return {name: value.replace("\r\n", "\n") for name, value in found.items()}


def check_origin(request: Request) -> None:
    """Refuse a form of another site. Raises `ScopeDenied`.

    The form's own secret would refuse it, too: two locks, since each alone has been picked.
    """
    site = request.header(b"sec-fetch-site")
    origin = request.header(b"origin")
    foreign = site is not None and site not in (b"same-origin", b"none")
    if origin is not None and origin != b"null":
        host = (request.header(b"host") or b"").decode("latin-1")
        foreign = foreign or urlsplit(origin.decode("latin-1")).netloc != host
    if foreign or origin == b"null":
        raise ScopeDenied("this form was sent by another site")


def _fields(text: str) -> Mapping[str, str]:
    try:
        pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise Misuse(f"a form has at most {FIELDS_MAX} fields, in UTF-8") from error
    return dict(reversed(pairs))  # of two of one name, the first
