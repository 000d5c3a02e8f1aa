"""`/admin/v1` as a function: routes, strict bodies, pages, errors in OpenAI's shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scopekv.adapters.registry import SqlRegistry, open_registry
from scopekv.core.scopes import Principal
from scopekv.gateway.admin_call import BODY_BYTES_MAX
from scopekv.gateway.admin_http import handle
from scopekv.gateway.admin_routes import ROUTES
from scopekv.gateway.administration import LOCAL_OPERATOR, Administration

Answer = tuple[int, dict[str, Any]]
Request = Callable[..., Answer]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[SqlRegistry]:
    opened = open_registry(f"sqlite:///{tmp_path / 'registry.db'}")
    yield opened
    opened.close()


@pytest.fixture
def request_as(registry: SqlRegistry) -> Request:
    """Call as a principal: `request_as("POST", "/orgs", {...}, caller=...)`."""
    service = Administration(registry)

    def call(
        method: str,
        path: str,
        body: object = None,
        query: str = "",
        caller: Principal = LOCAL_OPERATOR,
    ) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode() if body else b""
        status, answer = handle(service, caller, method, "/admin/v1" + path, query, data)
        json.dumps(answer)
        if status >= 400:
            assert set(answer) == {"error"}
            assert set(answer["error"]) == {"message", "type", "param", "code"}
        return status, answer

    return call


def test_a_day_of_administration(request_as: Request, registry: SqlRegistry) -> None:
    assert request_as("POST", "/orgs", {"name": "acme"})[0] == 201
    assert request_as("POST", "/orgs/acme/users", {"name": "alice"})[0] == 201
    assert request_as("POST", "/orgs/acme/service-accounts", {"name": "bot"})[0] == 201
    assert request_as("POST", "/orgs/acme/groups", {"name": "eng"})[0] == 201
    assert request_as("PUT", "/orgs/acme/groups/eng/members/alice")[1]["members"] == ["alice"]
    roles = request_as("PUT", "/orgs/acme/accounts/alice/roles/publisher")[1]["roles"]
    assert roles == ["member", "publisher"]
    status, key = request_as("POST", "/orgs/acme/keys", {"owner": "alice", "label": "laptop"})
    assert status == 201
    assert key["secret"].startswith("sk-scopekv-")
    new = request_as("POST", f"/keys/{key['key']['id']}/rotate", {"overlap_seconds": 5})[1]
    assert request_as("POST", f"/keys/{new['key']['id']}/block")[1]["blocked"] is True
    body = {"name": "handbook", "audience": "group:acme/eng", "text": "a\0\r\n\U0001f600"}
    document = request_as("POST", "/documents", body)[1]
    assert request_as("GET", f"/documents/{document['id']}/text")[1]["text"] == body["text"]
    revised = request_as("POST", "/documents/acme%2Fhandbook/revisions", {"text": "b"})
    assert revised[0] == 201
    assert revised[1]["revision"] == 2
    path = "/documents/handbook/audience"
    assert request_as("PUT", path, {"audience": "public"})[1]["audience"] == "public"
    assert request_as("GET", "/documents/handbook")[1]["epoch"] == 2
    assert request_as("POST", "/documents/handbook/withdraw")[1]["withdrawn"] is True
    assert request_as("PUT", "/orgs/acme/rules", {"system": "user"})[1]["system"] == "user"
    assert request_as("POST", "/epochs/bump", {"scope": "user:acme/alice"})[1]["epoch"] == 1
    assert request_as("GET", "/epochs", query="scope=user:acme/alice")[1]["epoch"] == 1
    assert request_as("DELETE", "/orgs/acme/groups/eng")[0] == 200
    assert request_as("POST", "/orgs/acme/block")[1]["blocked"] is True
    assert request_as("DELETE", "/orgs/acme")[0] == 200
    assert request_as("GET", "/audit/verify")[1]["intact"] is True
    first = request_as("GET", "/audit", query="limit=1")[1]
    assert (first["data"][0]["action"], first["has_more"]) == ("org.create", True)
    assert key["secret"] not in json.dumps(request_as("GET", "/audit")[1])
    assert registry.versions().documents == 4


def test_pages_meet(request_as: Request) -> None:
    names = [f"org{number}" for number in range(5)]
    for name in names:
        request_as("POST", "/orgs", {"name": name})
    seen: list[str] = []
    after = ""
    while after is not None:
        status, page = request_as("GET", "/orgs", query=f"limit=2&after={after}")
        assert status == 200
        assert page["object"] == "list"
        seen += [item["name"] for item in page["data"]]
        after = page["next"]
    assert seen == names


@pytest.mark.parametrize(
    ("body", "param", "says"),
    [
        (b'{"name": "acme"', None, "not JSON"),
        (b"\xff\xfe", None, "not JSON"),
        (b"[]", None, "Expected `object`"),
        (b'{"name": 5}', "name", "Expected `str`"),
        (b'{"name": "acme", "colour": "red"}', "colour", "unknown field"),
        (b"{}", "name", "required field"),
        (b"", "name", "required field"),
        (b'{"name": "a b"}', None, "is not a name"),
    ],
)
def test_a_bad_body_is_refused_by_name(
    request_as: Request, body: bytes, param: str | None, says: str
) -> None:
    status, answer = request_as("POST", "/orgs", body)
    assert status == 400
    assert answer["error"]["param"] == param
    assert says in answer["error"]["message"]
    assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("query", "param"),
    [("limit=0", "limit"), ("limit=1001", "limit"), ("limit=x", "limit"), ("limit=-1", "limit"),
     ("color=red", "color"), ("limit=1&limit=2", "limit")],
)  # fmt: skip
def test_a_bad_query_is_refused_by_name(request_as: Request, query: str, param: str) -> None:
    status, answer = request_as("GET", "/orgs", query=query)
    assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nothing", 404, "not_found"),
        ("GET", "", 404, "not_found"),
        ("GET", "/orgs/acme/users/a/b/c", 404, "not_found"),
        ("GET", "/orgs/nobody", 404, "not_found"),
        ("PATCH", "/orgs", 405, "method_not_allowed"),
        ("DELETE", "/audit", 405, "method_not_allowed"),
        ("PUT", "/audit", 405, "method_not_allowed"),
    ],
)
def test_what_is_not_there(
    request_as: Request, method: str, path: str, status: int, code: str
) -> None:
    got, answer = request_as(method, path)
    assert (got, answer["error"]["code"]) == (status, code)


def test_large_bodies_are_refused_and_large_texts_are_not(request_as: Request) -> None:
    text = "\U0001f600" * (1024 * 1024)
    body = json.dumps({"name": "d", "audience": "public", "text": text}).encode()
    assert request_as("POST", "/documents", body)[0] == 201
    body = json.dumps({"name": "e", "audience": "public", "text": text + "x"}).encode()
    assert request_as("POST", "/documents", body)[0] == 413
    assert request_as("POST", "/documents", b" " * (BODY_BYTES_MAX + 1))[0] == 413
    assert request_as("GET", "/orgs", query="a" * 5000)[0] == 413


def test_a_body_that_no_route_reads_is_refused(request_as: Request) -> None:
    request_as("POST", "/orgs", {"name": "acme"})
    status, answer = request_as("POST", "/orgs/acme/block", {"until": "tomorrow"})
    assert (status, answer["error"]["param"]) == (400, "until")
    assert request_as("GET", "/orgs/acme")[1]["blocked"] is False


def test_a_body_names_no_other_tenant(request_as: Request, registry: SqlRegistry) -> None:
    """I8: the credential decides, and the attempt is in the log."""
    for org in ("acme", "globex"):
        request_as("POST", "/orgs", {"name": org})
        request_as("POST", f"/orgs/{org}/users", {"name": "pat"})
        request_as("PUT", f"/orgs/{org}/accounts/pat/roles/publisher")
    with registry.read() as view:
        home = view.orgs.get("acme")
        assert home
        account = view.accounts.get(home.uid, "pat")
        assert account
    body = {"name": "d", "audience": "org:acme", "text": "x", "org": "globex"}
    status, answer = request_as("POST", "/documents", body, caller=account.principal)
    assert (status, answer["error"]["code"]) == (404, "not_found")
    assert request_as("GET", "/documents")[1]["data"] == []
    entry = request_as("GET", "/audit")[1]["data"][-1]
    assert (entry["outcome"], entry["reason"]) == ("denied", "denied_other_org")
    assert entry["actor"].startswith("acme/pat ")


def test_a_broken_registry_is_a_503_that_names_no_file(
    request_as: Request, registry: SqlRegistry, tmp_path: Path
) -> None:
    (tmp_path / "registry.db").rename(tmp_path / "elsewhere.db")
    status, answer = request_as("GET", "/orgs")
    assert (status, answer["error"]["type"]) == (503, "server_error")
    assert "registry.db" not in json.dumps(answer)


@pytest.mark.parametrize(
    "name", ["%00", "a%00b", "%ff%fe", "%ED%A0%80", "..", "%2F", "é", "a" * 9000]
)
def test_odd_paths_are_plain_refusals(request_as: Request, name: str) -> None:
    for method, path in (
        ("GET", f"/orgs/{name}"),
        ("GET", f"/documents/{name}"),
        ("DELETE", f"/keys/{name}"),
        ("GET", f"/orgs?after={name}"),
    ):
        bare, _, query = path.partition("?")
        status, _ = request_as(method, bare, query=query)
        assert status in ((200, 400, 413) if query else (400, 404))
    status, _ = request_as("POST", "/epochs/bump", b'{"scope": "org:\\ud800"}')
    assert status in (400, 404)


def test_every_route_is_one_of_a_kind() -> None:
    shapes = [(route.method, route.path.replace("{name}", "{}")) for route in ROUTES]
    assert len(set(shapes)) == len(shapes)
    assert all(route.path.startswith("/") for route in ROUTES)
