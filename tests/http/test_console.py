"""The console over HTTP: who sees what, and what a browser is told to keep, run and send."""

from __future__ import annotations

import html
from hashlib import sha256

import pytest

from scopekv.core.scopes import Principal
from scopekv.simulate.browser import Browser, location, logged_in, secret_of
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
HOSTILE = '"><script>alert(1)</script>'
PAGES = ("", "/documents", "/requests")
ADMIN_PAGES = ("/revoke", "/receipts")
OPERATOR_PAGES = ("/instances", "/log", "/audits")


async def test_without_a_session_every_page_leads_to_the_log_in(stage: Stage) -> None:
    for path in (*PAGES, *ADMIN_PAGES, *OPERATOR_PAGES, "/nowhere", "/documents/doc_1"):
        assert location(await Browser(stage.deployment.url).get(path)) == "/login"
    forged = Browser(stage.deployment.url, {"scopekv_console": "A" * 43})
    assert location(await forged.get("")) == "/login"


async def test_a_wrong_key_opens_nothing(stage: Stage) -> None:
    browser = Browser(stage.deployment.url)
    secret = secret_of(await browser.get("/login"))
    answer = await browser.post("/login", {"form": secret, "key": f"sk-scopekv-{HOSTILE}"})
    assert answer.status == 401
    assert b"alert(1)" not in answer.content
    assert "scopekv_console" not in browser.cookies


async def test_pages_are_kept_by_nobody_and_run_nothing(
    stage: Stage, browsers: dict[str, Browser]
) -> None:
    fresh = Browser(stage.deployment.url)
    answers = [await browsers["root"].get(path) for path in (*PAGES, *OPERATOR_PAGES, "/nowhere")]
    answers += [await fresh.get("/login"), await fresh.get("")]
    for answer in answers:
        headers = dict(answer.headers)
        policy = headers[b"content-security-policy"].decode()
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "unsafe" not in policy
        assert headers[b"cache-control"] == b"no-store"
        assert headers[b"x-content-type-options"] == b"nosniff"
        for forbidden in (b"<script", b" style=", b"javascript:", b" onclick"):
            assert forbidden not in answer.content


async def test_the_session_cookie_is_out_of_reach(stage: Stage, keys: Keys) -> None:
    browser = Browser(stage.deployment.url)
    secret = secret_of(await browser.get("/login"))
    fields = {"form": secret, "key": keys["alice"]}
    answer = await browser.post("/login", fields, (b"x-forwarded-proto", b"https"))
    (cookie,) = [v for n, v in answer.headers if v.startswith(b"scopekv_console=")]
    for part in (b"HttpOnly", b"SameSite=Strict", b"Path=/console", b"Secure"):
        assert part in cookie
    assert keys["alice"] not in str(browser.cookies)


async def test_logging_out_ends_the_session(stage: Stage, keys: Keys) -> None:
    browser = await logged_in(stage.deployment.url, keys["alice"])
    kept = dict(browser.cookies)
    assert location(await browser.form("/logout", {})) == "/login"
    assert location(await Browser(stage.deployment.url, kept).get("")) == "/login"


async def test_a_blocked_key_ends_its_sessions(stage: Stage) -> None:
    key = stage.deployment.account("acme", "eve")
    browser = await logged_in(stage.deployment.url, key)
    assert (await browser.get("")).status == 200
    with stage.deployment.world.registry.write() as tx:
        org = tx.orgs.get("acme")
        assert org is not None
        (found,) = [one for one in tx.keys.list(org.uid, "", "", 100) if one.owner == "eve"]
        tx.keys.set_blocked(found.uid, True)
    assert location(await browser.get("")) == "/login"


async def test_a_form_of_another_page_or_site_changes_nothing(browsers: dict[str, Browser]) -> None:
    pat = browsers["pat"]
    fields = {"name": "forged", "audience": "org:acme", "text": "forged"}
    own = secret_of(await pat.get("/documents"))
    other = secret_of(await browsers["alice"].get("/documents"))
    for form in ({}, {"form": ""}, {"form": other}, {"form": own[:-1]}):
        assert (await pat.post("/documents", {**fields, **form})).status == 403
    for header in (
        (b"sec-fetch-site", b"cross-site"),
        (b"sec-fetch-site", b"same-site"),
        (b"origin", b"https://evil.example"),
        (b"origin", b"null"),
    ):
        assert (await pat.post("/documents", {**fields, "form": own}, header)).status == 403
    assert b"forged" not in (await pat.get("/documents")).content


async def test_nobody_is_logged_in_by_another_site(
    browsers: dict[str, Browser], keys: Keys
) -> None:
    """Whoever works in an attacker's session tells the attacker what they do."""
    url, key = browsers["pat"].url, keys["alice"]
    for form in ({}, {"form": ""}, {"form": "guessed"}):  # without a cookie, as from elsewhere
        assert (await Browser(url).post("/login", {"key": key, **form})).status == 401
    visitor = Browser(url)
    own = secret_of(await visitor.get("/login"))
    for header in ((b"origin", b"https://evil.example"), (b"sec-fetch-site", b"cross-site")):
        answer = await visitor.post("/login", {"key": key, "form": own}, header)
        assert answer.status == 403
    assert location(await visitor.post("/login", {"key": key, "form": own})) == ""


async def test_who_sees_which_page(browsers: dict[str, Browser]) -> None:
    expected = {
        "alice": PAGES,
        "pat": PAGES,
        "anna": (*PAGES, *ADMIN_PAGES),
        "root": (*PAGES, *ADMIN_PAGES, *OPERATOR_PAGES),
    }
    for name, seen in expected.items():
        nowhere = await browsers[name].get("/nowhere")
        assert nowhere.status == 404
        for path in (*PAGES, *ADMIN_PAGES, *OPERATOR_PAGES):
            answer = await browsers[name].get(path)
            assert (answer.status == 200) == (path in seen), (name, path)
            if path not in seen:
                assert answer.content == nowhere.content, "denied and unknown look the same"
                assert f'href="/console{path}"'.encode() not in nowhere.content


async def test_another_organisation_is_nowhere_to_be_seen(
    stage: Stage, keys: Keys, browsers: dict[str, Browser]
) -> None:
    """Names, counts and times of globex, in no page of acme's administrator (L10)."""
    stage.deployment.publish("globex-plans", "org:globex", text_of("plans", 40))
    pages = (*PAGES, *ADMIN_PAGES)
    before = [await browsers["anna"].get(path) for path in pages]
    for number in range(3):
        await stage.client.chat(keys["bob"], text_of(f"of globex {number}", 80))
    await stage.deployment.gateway.recorder.keep()
    revoked = stage.deployment.administration.revocations.user(
        (await operator(stage, keys)), "globex", "bob"
    )
    await stage.deployment.gateway.revoker.settled(revoked.receipt.id, 60)
    after = [await browsers["anna"].get(path) for path in pages]
    assert [one.content for one in after] == [one.content for one in before]
    assert not any(b"globex" in one.content for one in after)
    assert b"solation" not in after[0].content, "its cost speaks of what others sent"
    assert b"Cost of isolation" in (await browsers["root"].get("")).content
    unknown = await browsers["anna"].get("/receipts/rcp_0")
    hidden = await browsers["anna"].get(f"/receipts/{revoked.receipt.id}")
    assert (unknown.status, hidden.status) == (404, 404)
    for path in (f"/receipts/{revoked.receipt.id}", "/documents/globex-plans", "?org=globex"):
        assert b"bob" not in (await browsers["anna"].get(path)).content
    overview = await browsers["root"].get("?org=globex")
    assert b"globex" in overview.content


async def operator(stage: Stage, keys: Keys) -> Principal:
    return await stage.deployment.gateway.access.holder(sha256(keys["root"].encode()).digest())


async def test_a_request_is_explained_to_its_sender_alone(
    stage: Stage, keys: Keys, browsers: dict[str, Browser]
) -> None:
    rules = text_of("console rules", 100)
    await stage.client.chat(keys["alice"], f"It is 10:15 now. {rules}", HOSTILE)
    answer = await stage.client.chat(keys["alice"], f"It is 10:16 now. {rules}", HOSTILE)
    name = dict(answer.headers)[b"x-scopekv-request"].decode()
    own = (await browsers["alice"].get(f"/requests/{name}")).content.decode()
    assert "A time or date changed" in own
    assert "It is 10:16" in html.unescape(own)
    assert "<script" not in own
    listed = (await browsers["anna"].get("/requests")).content
    assert name[:16].encode() in listed
    assert b"acme/alice" in listed
    nowhere = (await browsers["anna"].get("/requests/req_0")).content
    for other in ("anna", "root", "pat"):
        refused = await browsers[other].get(f"/requests/{name}")
        assert refused.status == 404
        assert b"10:16" not in refused.content
    assert (await browsers["anna"].get(f"/requests/{name}")).content == nowhere
    assert name[:16].encode() not in (await browsers["pat"].get("/requests")).content


async def test_languages(stage: Stage, browsers: dict[str, Browser]) -> None:
    fresh = Browser(stage.deployment.url)
    accepted = (b"accept-language", b"fr, ko-KR;q=0.9, en;q=0.8")
    assert 'lang="ko"' in (await fresh.get("/login", accepted)).content.decode()
    assert location(await fresh.get("/login?lang=en")) == "/login"
    assert '<html lang="en">' in (await fresh.get("/login", accepted)).content.decode()
    root = browsers["root"]
    assert location(await root.get("/log?lang=ko&before=3")) == "/log?before=3"
    assert "감사 로그" in (await root.get("/log")).content.decode()
    assert location(await root.get("?lang=en")) == ""
