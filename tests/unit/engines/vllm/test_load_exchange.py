"""The plugin's exchange of loads: behind vLLM's own key check, and in the head of each answer."""

from __future__ import annotations

from typing import Any

import pytest

from scopekv.core.backlogs import HEADER, Backlog, read_backlog

pytestmark = pytest.mark.slow  # importing vLLM takes seconds
KEY = "engine-key"
ONE, OTHER = (Backlog(2.5, 3, 4), b"1" * 16), (Backlog(0.5, 1, 0), b"2" * 16)


@pytest.fixture
def app() -> Any:
    """As vLLM builds it: the plugin's part first, then the key check."""
    fastapi = pytest.importorskip("fastapi", reason="needs the engine-cpu extra")
    pytest.importorskip("vllm", reason="needs the engine-cpu extra")
    from vllm.entrypoints.serve.middleware.authenticate import AuthenticationMiddleware

    from scopekv.engines.vllm.endpoint import ScopeKVEndpoint

    def page() -> dict[str, str]:
        return {}

    made = fastapi.FastAPI()
    for path in ("/v1/models", "/health"):
        made.get(path)(page)
    ScopeKVEndpoint().attach_router(made)
    made.add_middleware(AuthenticationMiddleware, tokens=[KEY])
    return made


async def ask(
    app: Any,
    load: tuple[Backlog, bytes] | None,
    *,
    path: str = "/v1/models",
    method: str = "GET",
    key: str = KEY,
) -> tuple[int, Backlog | None]:
    """The status, and what the answer says of others."""
    headers = [(b"authorization", b"Bearer " + key.encode())]
    if load is not None:
        headers.append((HEADER, load[1] + b" " + load[0].written()))
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    found = dict(sent[0]["headers"]).get(HEADER)
    return sent[0]["status"], read_backlog(found) if found is not None else None


async def test_each_gateway_hears_of_the_others_and_nobody_else_hears_anything(app: Any) -> None:
    assert await ask(app, ONE) == (200, Backlog())
    status, others = await ask(app, OTHER)
    assert others is not None
    assert (status, others.waiting, others.decoding) == (200, 3, 4)
    assert 0 < others.queue_seconds <= 2.5
    assert await ask(app, None) == (200, None)


async def test_only_who_has_the_engines_key_is_heard(app: Any) -> None:
    assert await ask(app, ONE, key="guessed") == (401, None)
    assert await ask(app, ONE, key="guessed", path="/health") == (200, None)
    assert (await ask(app, ONE, key="guessed", method="OPTIONS"))[1] is None
    assert await ask(app, OTHER) == (200, Backlog())
