"""The console over HTTP: what is done in it, and the figures that it shows."""

from __future__ import annotations

import re
import time
from hashlib import sha256
from pathlib import Path

import pytest

from scopekv.core.tallies import Place, Tally, Whose, places
from scopekv.errors import Unavailable
from scopekv.simulate.browser import Browser, location, logged_in
from scopekv.simulate.model import SimulatedModel
from scopekv.simulate.stage import Stage, text_of

pytestmark = pytest.mark.asyncio(loop_scope="module")
Keys = dict[str, str]
HOSTILE = '"><script>alert(1)</script>'


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


async def test_figures_are_those_of_the_answers(
    stage: Stage, keys: Keys, browsers: dict[str, Browser]
) -> None:
    key = stage.deployment.account("figures", "finn", roles=["org_admin"])
    prompt = text_of("figures", 120)
    answers = [await stage.client.chat(key, prompt) for _ in range(3)]
    total = sum(one.json["usage"]["prompt_tokens"] for one in answers)
    cached = sum(one.cached for one in answers)
    await stage.deployment.gateway.recorder.keep()
    browser = await logged_in(stage.deployment.url, key)
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
    page = (await (await logged_in(stage.deployment.url, key)).get("?window=hour")).content.decode()
    assert re.search(r"<dt>Time to first token</dt><dd>[\d.]+ m?s", page)
    assert "not told (streamed answers)" in page


async def test_what_cannot_be_kept_now_is_kept_later(tmp_path: Path, model: SimulatedModel) -> None:
    """A disk in trouble costs no request (L8), and no count once it is back."""
    in_the_way = tmp_path / "tallies.db"
    in_the_way.mkdir()
    async with Stage(tmp_path, model) as stage:
        key = stage.deployment.account("acme", "anna", roles=["org_admin"])
        recorder = stage.deployment.gateway.recorder
        browser = await logged_in(stage.deployment.url, key)
        for _ in range(2):
            assert (await stage.client.chat(key, text_of("later", 60))).status == 200
            with pytest.raises(Unavailable):
                await recorder.keep()
        assert (await browser.get("")).status == 503
        assert (await browser.get("/requests")).status == 200
        in_the_way.rmdir()
        await recorder.keep()
        page = (await browser.get("?window=hour")).content.decode()
        assert "<dt>Requests</dt><dd>2</dd>" in page


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
    page = (await (await logged_in(stage.deployment.url, key)).get("")).content.decode()
    assert "<dt>Requests</dt><dd>1,000,000</dd>" in page
    assert "<dd>60.0 %" in page
    assert "1,000,000" in (await browsers["root"].get("?org=million")).content.decode()
