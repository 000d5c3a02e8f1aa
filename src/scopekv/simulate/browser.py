"""A browser without a screen: keeps cookies, follows nothing, and sends forms as browsers do."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import urlencode

from scopekv.errors import Misuse
from scopekv.gateway.http import ClientPool
from scopekv.simulate.client import ANSWER_BYTES_MAX, Answer

Header = tuple[bytes, bytes]
CONSOLE = "/console"
_FORM = b"application/x-www-form-urlencoded"
_SECRET = re.compile(rb'name="form" value="([^"]+)"')


@dataclass(slots=True)
class Browser:
    """One person's, at the console of a gateway. Paths are those below `/console`."""

    url: str
    cookies: dict[str, str] = field(default_factory=dict)

    async def get(self, path: str, *headers: Header) -> Answer:
        return await self._send("GET", path, b"", headers)

    async def post(self, path: str, fields: dict[str, str], *headers: Header) -> Answer:
        """Send a form with these fields and no others."""
        sent = (b"content-type", _FORM), *headers
        return await self._send("POST", path, urlencode(fields).encode(), sent)

    async def form(self, path: str, fields: dict[str, str], page: str = "") -> Answer:
        """Open a page and send a form with the secret that it holds."""
        return await self.post(path, {"form": secret_of(await self.get(page)), **fields})

    async def log_in(self, key: str) -> Answer:
        return await self.form("/login", {"key": key}, "/login")

    async def _send(
        self, method: str, path: str, body: bytes, headers: tuple[Header, ...]
    ) -> Answer:
        cookie = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        sent = [(b"cookie", cookie.encode()), *headers]
        pool = ClientPool(self.url)
        try:
            found = await pool.request(method, CONSOLE + path, sent, body, timeout_seconds=120)
            async with found:
                answer = Answer(found.status, found.headers, await found.read(ANSWER_BYTES_MAX))
        finally:
            await pool.close()
        for name, value in answer.headers:
            if name == b"set-cookie":
                given, _, content = value.decode().partition(";")[0].partition("=")
                self.cookies[given] = content
        return answer


def secret_of(answer: Answer) -> str:
    """What a form of this page proves itself with. Raises `Misuse` where there is none."""
    found = _SECRET.search(answer.content)
    if found is None:
        raise Misuse(f"the answer with status {answer.status} holds no form")
    return found[1].decode()


def location(answer: Answer) -> str:
    """Where an answer leads, below `/console`. Raises `Misuse` where it does not."""
    if answer.status != 303:
        raise Misuse(f"status {answer.status} leads nowhere")
    return dict(answer.headers)[b"location"].decode().removeprefix(CONSOLE)


async def logged_in(url: str, key: str) -> Browser:
    """A browser of whoever holds this key. Raises `Misuse` where the gateway takes it for none."""
    browser = Browser(url)
    location(await browser.log_in(key))
    return browser
