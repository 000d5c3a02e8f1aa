"""The console in a real Chromium: accessible, usable by keyboard, on any width, without script."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from scopekv.simulate.stage import Stage
from tests.browser.chromium import Tab

pytestmark = pytest.mark.asyncio(loop_scope="session")
Keys = dict[str, str]
PAGES = (
    *("", "?window=hour", "/documents", "/requests", "/instances", "/revoke", "/receipts"),
    *("/log", "/audits", "/nowhere"),
)
WAYS = [(1280, False, "en"), (1280, True, "ko"), (390, True, "en"), (390, False, "ko")]


class Visitor:
    """Somebody at the console with a browser."""

    def __init__(self, tab: Tab, stage: Stage, keys: Keys) -> None:
        self.tab, self.keys = tab, keys
        self.url = f"{stage.deployment.url}/console"

    async def open(self, path: str) -> None:
        await self.tab.open(self.url + path)

    async def log_in(self, name: str) -> None:
        await self.tab.call("Network.clearBrowserCookies")
        await self.open("/login")
        key = json.dumps(self.keys[name])
        await self.tab.submit(
            f"document.querySelector('#key').value = {key};"
            "document.querySelector('main button').click()"
        )

    async def paths(self) -> list[str]:
        """All pages of an operator, with one of each kind that has a name of its own."""
        found = list(PAGES)
        for listing in ("/documents", "/requests", "/receipts"):
            await self.open(listing)
            path = await self.tab.run("document.querySelector('tbody a').pathname")
            found.append(path.removeprefix("/console"))
        return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def visitor(tab: Tab, furnished: tuple[Stage, Keys]) -> AsyncIterator[Visitor]:
    yield Visitor(tab, *furnished)


async def broken_rules(tab: Tab, axe: str) -> list[str]:
    """What axe-core finds, but for its minor findings."""
    await tab.run(axe + "; 1")
    found: dict[str, Any] = await tab.run("axe.run(document, {resultTypes: ['violations']})")
    assert len(found["passes"]) > 10, "axe has looked at the page"
    return [
        f"{one['id']} ({one['impact']}): {[node['html'][:120] for node in one['nodes'][:3]]}"
        for one in found["violations"]
        if one["impact"] != "minor"
    ]


@pytest.mark.parametrize(("width", "dark", "language"), WAYS)
async def test_axe_finds_nothing_serious(
    visitor: Visitor, axe: str, width: int, dark: bool, language: str
) -> None:
    tab = visitor.tab
    await tab.call("Page.setBypassCSP", enabled=True)  # axe itself is a script
    await tab.look(width=width, dark=dark)
    await visitor.log_in("root")
    await visitor.open(f"?lang={language}")
    found: list[str] = []
    for path in await visitor.paths():
        await visitor.open(path)
        found += [f"{path}: {one}" for one in await broken_rules(tab, axe)]
    await tab.call("Network.clearBrowserCookies")
    await visitor.open("/login")
    found += [f"/login: {one}" for one in await broken_rules(tab, axe)]
    await tab.call("Page.setBypassCSP", enabled=False)
    assert found == []


@pytest.mark.parametrize(("width", "dark", "language"), WAYS)
async def test_no_page_is_wider_than_its_window(
    visitor: Visitor, width: int, dark: bool, language: str
) -> None:
    tab = visitor.tab
    await tab.look(width=width, dark=dark)
    await visitor.log_in("root")
    await visitor.open(f"?lang={language}")
    for path in await visitor.paths():
        await visitor.open(path)
        assert await tab.run("document.documentElement.scrollWidth") <= width, path
        assert await tab.run("document.documentElement.lang") == language


async def test_it_works_without_javascript(visitor: Visitor) -> None:
    tab = visitor.tab
    await tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        await tab.look(width=1280, dark=False)
        await visitor.log_in("root")
        assert await tab.run("location.pathname") == "/console"
        await tab.submit("document.querySelector('a[href=\"/console/receipts\"]').click()")
        assert await tab.run("document.querySelectorAll('tbody tr').length") >= 1
    finally:
        await tab.call("Emulation.setScriptExecutionDisabled", value=False)


async def test_the_first_tab_stop_skips_to_the_content(visitor: Visitor) -> None:
    tab = visitor.tab
    await tab.look(width=1280, dark=False)
    await visitor.log_in("root")
    await visitor.open("/receipts")
    await tab.press("Tab")
    assert await tab.run("document.activeElement.className") == "skip"
    assert await tab.run("document.activeElement.getBoundingClientRect().left") >= 0
    await tab.press("Enter")
    assert await tab.run("location.hash") == "#main"
    stops = []
    for _ in range(2):
        await tab.press("Tab")
        stops.append(await tab.run("document.activeElement.textContent.trim().slice(0, 20)"))
    assert await tab.run("document.querySelector('main').contains(document.activeElement)")
    assert stops[1].startswith("rcp_")


async def test_the_browser_runs_no_script_of_a_page(visitor: Visitor) -> None:
    """The policy holds even where markup would get through."""
    await visitor.log_in("root")
    await visitor.tab.run(
        "document.body.insertAdjacentHTML('beforeend',"
        ' \'<img src=x onerror="window.ran = 1"><svg onload="window.ran = 1"></svg>\'); 1'
    )
    assert await visitor.tab.run("window.ran === undefined")
    assert await visitor.tab.run("document.cookie") == "", "no script reads the session"


async def test_a_document_is_published_and_withdrawn_by_hand(visitor: Visitor) -> None:
    tab = visitor.tab
    await visitor.log_in("pat")
    await visitor.open("/documents")
    fields = {"name": "by-hand", "audience": "org:acme", "text": "First line\\nsecond line"}
    fill = "".join(
        f"document.querySelector('#{name}').value = '{value}';" for name, value in fields.items()
    )
    await tab.submit(fill + "document.querySelector('main button').click()")
    assert await tab.run("document.querySelector('h1').textContent.trim()") == "by-hand"
    assert await tab.run("document.querySelector('[role=status]').textContent.trim()")
    withdraw = "document.querySelector('form[action$=withdraw]')"
    await tab.submit(
        f"{withdraw}.querySelector('input[type=checkbox]').click();"
        f"{withdraw}.querySelector('button').click()"
    )
    assert "/console/receipts/" in await tab.run("location.pathname")
    assert "done" in await tab.run("document.querySelector('h1').textContent")
