"""What a browser sends is read strictly: forms, cookies, and where they came from."""

from __future__ import annotations

import pytest

from scopekv.console.forms import check_origin, cookies, query_of, read_form, set_cookie
from scopekv.errors import Misuse, ScopeDenied
from scopekv.gateway.http.messages import Request

FORM = (b"content-type", b"application/x-www-form-urlencoded")


def request(*headers: tuple[bytes, bytes], body: bytes = b"", query: str = "") -> Request:
    return Request("POST", "/console", query, list(headers), body)


def test_a_form_is_read_with_plain_line_ends() -> None:
    form = read_form(request(FORM, body=b"text=+a%0D%0A%ED%95%9C+&empty=&text=second"))
    assert form == {"text": " a\n한 ", "empty": ""}


@pytest.mark.parametrize(
    "body", [b"&".join(b"f%d=1" % n for n in range(30)), b"text=%ff%fe"], ids=["many", "no UTF-8"]
)
def test_a_form_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(Misuse):
        read_form(request(FORM, body=body))


def test_json_is_no_form() -> None:
    with pytest.raises(Misuse, match="urlencoded"):
        read_form(request((b"content-type", b"application/json"), body=b"{}"))
    with pytest.raises(Misuse):
        query_of(request(query="a=%ff"))


def test_of_two_cookies_of_one_name_the_first_counts() -> None:
    found = cookies(request((b"cookie", b"a=1; b=x=y; a=2"), (b"cookie", b"a=3")))
    assert found == {"a": "1", "b": "x=y"}


@pytest.mark.parametrize(
    ("headers", "own"),
    [
        ([], True),
        ([(b"sec-fetch-site", b"same-origin")], True),
        ([(b"sec-fetch-site", b"cross-site")], False),
        ([(b"host", b"a:1"), (b"origin", b"http://a:1")], True),
        ([(b"host", b"a:1"), (b"origin", b"http://a:2")], False),
        ([(b"origin", b"null")], False),
    ],
)
def test_a_form_comes_from_here(headers: list[tuple[bytes, bytes]], own: bool) -> None:
    if own:
        check_origin(request(*headers))
    else:
        with pytest.raises(ScopeDenied):
            check_origin(request(*headers))


def test_cookies_are_for_this_site_and_no_script() -> None:
    name, value = set_cookie("s", "v", seconds=60, request=request())
    assert name == b"set-cookie"
    assert value == b"s=v; Path=/console; Max-Age=60; HttpOnly; SameSite=Strict"
