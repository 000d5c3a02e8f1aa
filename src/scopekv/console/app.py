"""The console's routes: from a request to a page, through session, form check and permission."""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlencode

from scopekv.console import render
from scopekv.console.auditing import Auditing
from scopekv.console.documents import DocumentPages
from scopekv.console.forms import check_origin, cookies, query_of, read_form, set_cookie
from scopekv.console.instances import InstancePages
from scopekv.console.languages import Code, Language, language_of
from scopekv.console.overview import Overview
from scopekv.console.parts import CONSOLE, Answer, File, Page, Parts, Redirect, Visit
from scopekv.console.requests import RequestPages
from scopekv.console.revoking import Revoking
from scopekv.console.sessions import LIFE_SECONDS, Session, Sessions
from scopekv.core.scopes import Principal
from scopekv.errors import Misuse, NotFound, ScopeDenied, ScopeKVError, Unauthenticated
from scopekv.gateway.errors_http import failure_of
from scopekv.gateway.http.messages import Request
from scopekv.gateway.http.reply import Reply

SESSION, FORM, LANGUAGE = "scopekv_console", "scopekv_form", "scopekv_language"
LOG_IN, LOG_OUT = f"{CONSOLE}/login", f"{CONSOLE}/logout"
LANGUAGE_SECONDS = 365 * 86_400
Handler = Callable[[Visit], Awaitable[Answer]]
log = logging.getLogger("scopekv.console")


@dataclass(frozen=True, slots=True)
class _Route:
    """`parts`: of the path below /console; "*" takes any one part."""

    method: str
    parts: tuple[str, ...]
    handler: Handler

    def takes(self, method: str, parts: list[str]) -> bool:
        return (
            method == self.method
            and len(parts) == len(self.parts)
            and all(mine in ("*", given) for mine, given in zip(self.parts, parts, strict=True))
        )


class Console:
    """Serves everything below /console. Holds the sessions of this process."""

    def __init__(self, parts: Parts, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._parts = parts
        self.sessions = Sessions(monotonic)
        overview, documents = Overview(parts), DocumentPages(parts)
        requests, instances = RequestPages(parts), InstancePages(parts)
        revoking, auditing = Revoking(parts), Auditing(parts)
        table: Mapping[str, Handler] = {
            "GET ": overview.show,
            "GET documents": documents.list,
            "POST documents": documents.publish,
            "GET documents/*": documents.show,
            "POST documents/*/revise": documents.revise,
            "POST documents/*/audience": documents.set_audience,
            "POST documents/*/withdraw": documents.withdraw,
            "GET requests": requests.list,
            "GET requests/*": requests.show,
            "GET instances": instances.show,
            "POST instances/*/*": instances.change,
            "GET revoke": revoking.form,
            "POST revoke": revoking.revoke,
            "GET receipts": revoking.list,
            "GET receipts/*": revoking.show,
            "GET log": auditing.log,
            "POST log": auditing.verify,
            "GET audits": auditing.reports,
            "GET audits/*/report.html": auditing.report,
        }
        self._routes = [
            _Route(method, tuple(part for part in path.split("/") if part), handler)
            for (method, _, path), handler in (
                (name.partition(" "), handler) for name, handler in table.items()
            )
        ]

    @staticmethod
    def takes(path: str) -> bool:
        return path == CONSOLE or path.startswith(f"{CONSOLE}/")

    async def serve(self, request: Request, reply: Reply) -> None:
        """Answer one request. What goes wrong is a page, too."""
        if request.path == render.STYLE:
            reply.send(200, render.headers("text/css; charset=utf-8"), render.style())
            return
        given = cookies(request)
        accepted = request.header(b"accept-language") or b""
        language = language_of(given.get(LANGUAGE), accepted.decode("latin-1"))
        try:
            await self._answer(request, reply, given, language)
        except ScopeKVError as error:
            session = self.sessions.get(given.get(SESSION, ""))
            await self._fail(request, reply, language, error, session)

    async def _answer(
        self, request: Request, reply: Reply, given: Mapping[str, str], language: Language
    ) -> None:
        query = query_of(request)
        if query.get("lang") in set(Code):
            self._switch(request, reply, query)
            return
        if request.path == LOG_IN:
            await self._log_in(request, reply, given, language)
            return
        session = self.sessions.get(given.get(SESSION, ""))
        if session is None:
            self._to_log_in(reply)
            return
        access, digest = self._parts.access, session.digest
        try:
            async with self._parts.turns.place(lambda: access.holder(digest)):
                await self._seen(request, reply, session, language, query)
        except Unauthenticated:
            self.sessions.close(session.id)
            self._to_log_in(reply)

    async def _seen(
        self,
        request: Request,
        reply: Reply,
        session: Session,
        language: Language,
        query: Mapping[str, str],
    ) -> None:
        """Answer who is logged in. Who that is is asked when it is their turn."""
        principal = await self._parts.access.holder(session.digest)
        visit = self._visit(request, session, principal, language, query)
        if request.path == LOG_OUT and request.method == "POST":
            self.sessions.close(session.id)
            self._to_log_in(reply)
            return
        self._send(reply, visit, await self._handled(visit))

    def _visit(
        self,
        request: Request,
        session: Session,
        principal: Principal,
        language: Language,
        query: Mapping[str, str],
    ) -> Visit:
        form: Mapping[str, str] = {}
        if request.method == "POST":
            check_origin(request)
            form = read_form(request)
            if not session.own_form(form.get("form", "")):
                raise ScopeDenied("this form is not of your session, or is old: open it anew")
        elif request.method != "GET":
            raise Misuse("the console takes GET and POST")
        path = request.path.removeprefix(CONSOLE).strip("/")
        where = [unquote(part) for part in path.split("/") if part]
        return Visit(request, principal, session, language, query, form, where)

    async def _handled(self, visit: Visit) -> Answer:
        for route in self._routes:
            if route.takes(visit.request.method, list(visit.where)):
                return await route.handler(visit)
        raise NotFound("there is no such page")

    def _send(self, reply: Reply, visit: Visit, answer: Answer) -> None:
        if isinstance(answer, Redirect):
            self._redirect(reply, answer.to)
        elif isinstance(answer, File):
            reply.send(200, render.headers(answer.kind, answer.policy), answer.content)
        else:
            self._page(reply, answer, visit.language, visit.request.path, visit)

    @staticmethod
    def _page(
        reply: Reply, page: Page, language: Language, path: str, visit: Visit | None = None
    ) -> None:
        content = render.page(page.template, page.values, language=language, path=path, visit=visit)
        head = [*render.headers("text/html; charset=utf-8"), *page.headers]
        reply.send(page.status, head, content)

    @staticmethod
    def _redirect(reply: Reply, to: str, *more: tuple[bytes, bytes]) -> None:
        reply.send(303, [*render.headers("text/plain"), (b"location", to.encode()), *more], b"")

    def _to_log_in(self, reply: Reply) -> None:
        self._redirect(reply, LOG_IN, set_cookie(SESSION, "", seconds=0))

    def _switch(self, request: Request, reply: Reply, query: Mapping[str, str]) -> None:
        """Keep the language that was chosen, and lead back to where that was."""
        rest = urlencode({name: value for name, value in query.items() if name != "lang"})
        path = "/" + quote(unquote(request.path).lstrip("/\\"))  # never another host
        cookie = set_cookie(LANGUAGE, query["lang"], seconds=LANGUAGE_SECONDS)
        self._redirect(reply, f"{path}?{rest}" if rest else path, cookie)

    async def _log_in(
        self, request: Request, reply: Reply, given: Mapping[str, str], language: Language
    ) -> None:
        """Show the form, or take a key. The form's secret is in a cookie as well."""
        error = ""
        if request.method == "POST":
            check_origin(request)
            form = read_form(request)
            secret = given.get(FORM, "")
            own = secret and secrets.compare_digest(secret.encode(), form.get("form", "").encode())
            if own:
                digest = hashlib.sha256(form.get("key", "").strip().encode()).digest()
                try:
                    await self._parts.access.holder(digest)
                except Unauthenticated:
                    error = language.text("This API key is not valid: unknown, expired or blocked.")
                else:
                    self._opened(request, reply, digest)
                    return
            else:
                error = language.text("This form is old. Send it again.")
        self._log_in_form(request, reply, language, error)

    def _opened(self, request: Request, reply: Reply, digest: bytes) -> None:
        session = self.sessions.open(digest)
        cookie = set_cookie(SESSION, session.id, seconds=LIFE_SECONDS, request=request)
        self._redirect(reply, CONSOLE, cookie, set_cookie(FORM, "", seconds=0))

    def _log_in_form(self, request: Request, reply: Reply, language: Language, error: str) -> None:
        secret = secrets.token_urlsafe(32)
        values = {"secret": secret, "error": error, "log_in": LOG_IN}
        content = render.page("login.html.j2", values, language=language, path=LOG_IN)
        cookie = set_cookie(FORM, secret, seconds=3600, request=request)
        head = [*render.headers("text/html; charset=utf-8"), cookie]
        reply.send(401 if error else 200, head, content)

    async def _fail(
        self,
        request: Request,
        reply: Reply,
        language: Language,
        error: ScopeKVError,
        session: Session | None,
    ) -> None:
        failure = failure_of(error)
        visit = None
        if session is not None:
            try:
                principal = await self._parts.access.holder(session.digest)
                visit = Visit(request, principal, session, language, {}, {}, ())
            except ScopeKVError:
                log.warning("a page failed, and so did looking its visitor up")
        values = {"status": failure.status, "message": failure.message}
        page = Page("error.html.j2", values, failure.status, failure.retry)
        self._page(reply, page, language, f"{CONSOLE}/", visit)
