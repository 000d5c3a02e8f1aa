"""A real Chromium over its DevTools protocol: as much of it as these tests need."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
START_SECONDS = 60.0
CALL_SECONDS = 60.0
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    "--disable-dev-shm-usage",
)


class Tab:
    """One page. Every call waits until the browser has answered."""

    def __init__(self, wire: ClientConnection) -> None:
        self._wire = wire
        self._numbers = itertools.count(1)
        self.events: list[dict[str, Any]] = []

    async def call(self, method: str, **parameters: Any) -> Any:
        number = next(self._numbers)
        await self._wire.send(json.dumps({"id": number, "method": method, "params": parameters}))
        async with asyncio.timeout(CALL_SECONDS):
            while True:
                told = json.loads(await self._wire.recv())
                if told.get("id") != number:
                    self.events.append(told)
                elif "error" in told:
                    raise AssertionError(f"{method}: {told['error']}")
                else:
                    return told["result"]

    async def open(self, url: str) -> None:
        self.events.clear()
        await self.call("Page.navigate", url=url)
        await self.loaded()

    async def loaded(self) -> None:
        """Wait for the load event, if it has not come yet."""
        async with asyncio.timeout(CALL_SECONDS):
            while not any(one.get("method") == "Page.loadEventFired" for one in self.events):
                self.events.append(json.loads(await self._wire.recv()))
        self.events.clear()

    async def run(self, script: str) -> Any:
        """The value of an expression, as JSON; promises are waited for."""
        told = await self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in told:
            raise AssertionError(f"{script[:200]}: {told['exceptionDetails']}")
        return told["result"].get("value")

    async def submit(self, script: str) -> None:
        """Run what leads to another page, and wait for that."""
        self.events.clear()
        await self.run(script)
        await self.loaded()

    async def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            code = {"Tab": 9, "Enter": 13}[key]
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            await self.call(
                *("Input.dispatchKeyEvent",), type=kind, key=key, code=key,
                windowsVirtualKeyCode=code, **text,
            )  # fmt: skip

    async def look(self, *, width: int, dark: bool, height: int = 900, scale: float = 1) -> None:
        """Set the window's width in CSS pixels and what the system prefers."""
        await self.call(
            *("Emulation.setDeviceMetricsOverride",), width=width, height=height,
            deviceScaleFactor=scale, mobile=width < 600,
        )  # fmt: skip
        feature = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[feature])

    async def picture(self) -> bytes:
        """The whole page as PNG."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        told = await self.call(
            "Page.captureScreenshot", format="png", clip=clip, captureBeyondViewport=True
        )
        return base64.b64decode(told["data"])


@asynccontextmanager
async def browser(environment: dict[str, str] | None = None) -> AsyncIterator[Tab]:
    """Start a browser with an empty profile; end it and drop the profile afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        process = await asyncio.create_subprocess_exec(
            *(PROGRAM, *_FLAGS, f"--user-data-dir={folder}", "about:blank"),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **(environment or {})},
        )
        try:
            port = await _port(Path(folder) / "DevToolsActivePort")
            async with _tab(port) as tab:
                yield tab
        finally:
            process.terminate()
            await process.wait()


async def _port(path: Path) -> int:
    async with asyncio.timeout(START_SECONDS):
        while True:
            if lines := await asyncio.to_thread(_lines, path):
                return int(lines[0])
            await asyncio.sleep(0.05)


def _lines(path: Path) -> list[str]:
    """Of the file in which the browser writes its port; empty until it is whole."""
    lines = path.read_text().split() if path.exists() else []
    return lines if len(lines) == 2 else []


@asynccontextmanager
async def _tab(port: int) -> AsyncIterator[Tab]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    host = f"Host: 127.0.0.1:{port}\r\nContent-Length: 0\r\n\r\n"
    writer.write(f"PUT /json/new HTTP/1.1\r\n{host}".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    made = json.loads(await reader.readexactly(length))
    writer.close()
    await writer.wait_closed()
    async with connect(made["webSocketDebuggerUrl"], max_size=None) as wire:
        tab = Tab(wire)
        await tab.call("Page.enable")
        yield tab
