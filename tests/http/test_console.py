"""The console over HTTP: who sees what, and what a browser is told to keep, run and send."""

from __future__ import annotations

import html
import re
import time
from hashlib import sha256
from pathlib import Path

import pytest
import pytest_asyncio

from scopekv.core.scopes import Principal
from scopekv.core.tallies import Place, Tally, Whose, places
from scopekv.simulate.browser import Browser, location, secret_of
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
HOSTILE = '"><script>alert(1)</script>'
PAGES = ("", "/documents", "/requests")
ADMIN_PAGES = ("/revoke", "/receipts")
OPERATOR_PAGES = ("/instances", "/log", "/audits")


async def logged_in(stage: Stage, key: str) -> Browser:
    browser = Browser(stage.deployment.url)
    assert location(await browser.log_in(key)) == ""
    return browser


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browsers(stage: Stage, keys: Keys) -> dict[str, Browser]:
    keys["anna"] = stage.deployment.account("acme", "anna", roles=["org_admin"])
    return {name: await logged_in(stage, keys[name]) for name in ("alice", "pat", "anna", "root")}


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
    browser = await logged_in(stage, keys["alice"])
    kept = dict(browser.cookies)
    assert location(await browser.form("/logout", {})) == "/login"
    assert location(await Browser(stage.deployment.url, kept).get("")) == "/login"


async def test_a_blocked_key_ends_its_sessions(stage: Stage) -> None:
    key = stage.deployment.account("acme", "eve")
    browser = await logged_in(stage, key)
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
    await stage.deployment.gateway.revoker.settled(revoked.receipt.id, 30)
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


async def test_a_document_from_publication_to_withdrawal(browsers: dict[str, Browser]) -> None:
    pat = browsers["pat"]
    fields = {"name": "console-made", "audience": "org:acme", "text": "line\r\n two  \r\n"}
    page = location(await pat.form("/documents", fields, "/documents"))
    shown = (await pat.get(page)).content
    assert b"console-made" in shown
    receipt = location(await pat.form(f"{page}/revise", {"text": "other"}, page))
    assert receipt.startswith("/receipts/rcp_")
    assert (await pat.get(receipt)).status == 200
    moved = await pat.form(f"{page}/audience", {"audience": "group:acme/law"}, page)
    assert location(moved).startswith("/receipts/")
    refused = await pat.form(f"{page}/audience", {"audience": "public"}, page)
    assert refused.status == 403
    assert (await pat.form(f"{page}/withdraw", {}, page)).status == 400
    assert location(await pat.form(f"{page}/withdraw", {"sure": "yes"}, page))
    assert b"console-made" not in (await pat.get("/documents")).content
    member = await browsers["alice"].form("/documents", fields, "/documents")
    assert member.status == 403
    assert b"<textarea" not in (await browsers["alice"].get("/documents")).content


async def test_a_revocation_leads_to_its_receipt(browsers: dict[str, Browser]) -> None:
    anna = browsers["anna"]
    fields = {"target": "user", "org": "acme", "name": "ann"}
    receipt = location(await anna.form("/revoke", fields, "/revoke"))
    shown = (await anna.get(receipt)).content
    for expected in (b"engine-0", b"engine memory", b"user:acme/ann", b'class="tag done"'):
        assert expected in shown
    other = await anna.form("/revoke", fields | {"org": "globex", "name": "bob"}, "/revoke")
    unknown = await anna.form("/revoke", fields | {"org": "no-org", "name": "bob"}, "/revoke")
    assert other.status == unknown.status == 404
    whole = {"target": "org", "org": "acme", "sure": "acm"}
    assert (await anna.form("/revoke", whole, "/revoke")).status == 400
    member = browsers["alice"]
    assert (await member.form("/revoke", fields)).status == 404


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


async def test_figures_are_those_of_the_answers(
    stage: Stage, keys: Keys, browsers: dict[str, Browser]
) -> None:
    key = stage.deployment.account("figures", "finn", roles=["org_admin"])
    prompt = text_of("figures", 120)
    answers = [await stage.client.chat(key, prompt) for _ in range(3)]
    total = sum(one.json["usage"]["prompt_tokens"] for one in answers)
    cached = sum(one.cached for one in answers)
    await stage.deployment.gateway.recorder.keep()
    browser = await logged_in(stage, key)
    for page in (await browser.get("?window=hour"), await browsers["root"].get("?org=figures")):
        text = page.content.decode()
        assert f"<dd>{total:,}" in text
        assert f"<dd>{100 * cached / total:.1f} %" in text
        assert f'<td class="number">{cached:,}</td>' in text


async def test_a_streamed_answer_is_counted_with_its_first_token(
    stage: Stage, keys: Keys, browsers: dict[str, Browser]
) -> None:
    key = stage.deployment.account("streams", "sue", roles=["org_admin"])
    for _ in range(2):
        await stage.client.chat(key, text_of("streamed", 120), stream=True)
    await stage.deployment.gateway.recorder.keep()
    page = (await (await logged_in(stage, key)).get("?window=hour")).content.decode()
    assert re.search(r"<dt>Time to first token</dt><dd>[\d.]+ m?s", page)
    assert "not told (streamed answers)" in page


async def test_what_cannot_be_kept_now_is_kept_later(tmp_path: Path, model: SimulatedModel) -> None:
    """A disk in trouble costs no request (L8), and no count once it is back."""
    in_the_way = tmp_path / "tallies.db"
    in_the_way.mkdir()
    async with Stage(tmp_path, model) as stage:
        key = stage.deployment.account("acme", "anna", roles=["org_admin"])
        recorder = stage.deployment.gateway.recorder
        browser = await logged_in(stage, key)
        for _ in range(2):
            assert (await stage.client.chat(key, text_of("later", 60))).status == 200
            await recorder.keep()
        assert (await browser.get("")).status == 503
        assert (await browser.get("/requests")).status == 200
        in_the_way.rmdir()
        await recorder.keep()
        page = (await browser.get("?window=hour")).content.decode()
        assert "<dt>Requests</dt><dd>2</dd>" in page


async def test_instances_are_drained_and_resumed(
    stage: Stage, browsers: dict[str, Browser]
) -> None:
    root = browsers["root"]
    assert b"engine-0" in (await root.get("/instances")).content
    assert location(await root.form("/instances/engine-0/drain", {})) == "/instances"
    assert stage.deployment.gateway.fleet.instances[0].draining
    assert location(await root.form("/instances/engine-0/resume", {})) == "/instances"
    assert not stage.deployment.gateway.fleet.instances[0].draining
    assert (await browsers["anna"].form("/instances/engine-0/drain", {})).status == 404
    log = (await root.get("/log")).content
    assert b"instance_drain" in log


async def test_the_log_is_verified_and_names_in_it_are_text(browsers: dict[str, Browser]) -> None:
    root = browsers["root"]
    await root.form("/revoke", {"target": "document", "document": HOSTILE}, "/revoke")
    log = (await root.get("/log")).content
    assert b"alert(1)" in log
    assert b"<script" not in log
    checked = (await root.form("/log", {}, "/log")).content.decode()
    assert "The log is intact" in checked
    found = re.search(r"<code>(\d+:[0-9a-f]{64})</code>", checked)
    assert found
    again = await root.form("/log", {"head": found[1]}, "/log")
    assert b"The log is intact" in again.content
    wrong = await root.form("/log", {"head": "1:" + "0" * 64}, "/log")
    assert b"The log was changed" in wrong.content


async def test_reports_are_those_of_the_folder(stage: Stage, browsers: dict[str, Browser]) -> None:
    audits, root = stage.deployment.world.audits, browsers["root"]
    (audits / "night").mkdir(parents=True)
    (audits / "night" / "report.html").write_text("<p>held</p>")
    (audits.parent / "report.html").write_text("outside")
    (audits / "linked").symlink_to(audits.parent)
    listed = (await root.get("/audits")).content
    assert b"/console/audits/night/report.html" in listed
    assert b"linked" not in listed
    report = await root.get("/audits/night/report.html")
    assert report.content == b"<p>held</p>"
    assert b"sandbox" in dict(report.headers)[b"content-security-policy"]
    for name in ("..", "%2e%2e", "linked", "%2e%2e%2fkeys", "none"):
        assert (await root.get(f"/audits/{name}/report.html")).status == 404
    assert (await browsers["anna"].get("/audits/night/report.html")).status == 404


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


async def test_a_million_requests_are_one_page(stage: Stage, browsers: dict[str, Browser]) -> None:
    """What the page reads does not grow with the requests (benchmarks/console.py has times)."""
    key = stage.deployment.account("million", "max", roles=["org_admin"])
    access = stage.deployment.gateway.access
    who = await access.holder(sha256(key.encode()).digest())
    many = Tally.of(requests=5000, hits=4000, input_tokens=10_000_000, cached_tokens=6_000_000)
    now = time.time()
    found = {
        place: many
        for quarter in range(40)
        for engine in range(5)
        for place in places(
            int(now) - 900 * quarter, org=who.org_uid, account=who.uid, instance=f"e-{engine}"
        )
        if place.whose is Whose.ORG_INSTANCE
    }
    for place in list(found):
        whole = Place(place.start, Whose.ORG, who.org_uid, "")
        found[whole] = found.get(whole, Tally()) + many
    stage.deployment.world.tallies.add(found, now)
    page = (await (await logged_in(stage, key)).get("")).content.decode()
    assert "<dt>Requests</dt><dd>1,000,000</dd>" in page
    assert "<dd>60.0 %" in page
    assert "1,000,000" in (await browsers["root"].get("?org=million")).content.decode()
