"""A gateway that is killed beside another: real processes."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from scopekv.simulate.behaviour import Behaviour
from scopekv.simulate.client import Answer, PlainClient
from scopekv.simulate.stage import until
from tests.cases.gateway_site import BOTH, Site, flood

pytestmark = pytest.mark.slow


@contextmanager
def process(folder: Path, name: str, site: Site, numbers: Sequence[int]) -> Iterator[Process]:
    """`scopekv gateway --config`, over the site's registry."""
    config = folder / f"{name}.toml"
    config.write_text(
        "".join(
            f'[[instances]]\nname = "{a.name}"\nurl = "{a.url}"\napi_key = "{a.api_key}"\n'
            for a in site.addresses(numbers)
        )
    )
    command = [
        *(str(Path(sys.executable).with_name("scopekv")), "gateway", "--port", "0"),
        *("--config", str(config), "--data-dir", str(folder)),
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as running:
        try:
            yield Process(running)
        finally:  # else a test that fails would wait for it for ever
            running.kill()


class Process:
    """A gateway of its own."""

    def __init__(self, running: subprocess.Popen[str]) -> None:
        self._running = running

    async def url(self) -> str:
        stdout = self._running.stdout
        assert stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(stdout.readline), 200)
        return line.split()[-1]

    def kill(self) -> None:
        self._running.send_signal(signal.SIGKILL)
        self._running.wait()


async def paced(client: PlainClient, key: str, count: int) -> list[Answer]:
    """20 requests a second, each on its own."""
    asked = []
    for number in range(count):
        asked.append(asyncio.create_task(client.chat(key, f"question {number}", stream=True)))
        await asyncio.sleep(0.05)
    return list(await asyncio.gather(*asked))


async def test_a_killed_gateway_costs_the_others_clients_nothing_and_its_load_is_forgotten(
    site: Site, tmp_path: Path
) -> None:
    key = site.deployment.account("acme", "alice")
    root = site.deployment.account("hq", "root", roles=["operator"])
    with (
        process(tmp_path, "half", site, [0]) as half,
        process(tmp_path, "both", site, BOTH) as both,
    ):
        clients = [PlainClient(await one.url(), site.model.name) for one in (half, both)]
        site.behave(Behaviour(head_seconds=0.1))
        site.engines[0].behaviour = Behaviour(head_seconds=60)  # the flood would last
        flooding = flood(clients[0], key, 20)
        await until(lambda: site.engines[0].seen.running == 20)

        async def of_others() -> list[int]:
            answer = await clients[1].send("GET", "/admin/v1/instances", key=root)
            return [row["of_other_gateways"] for row in answer.json["data"]]

        async def hears(expected: list[int]) -> None:
            async with asyncio.timeout(60):
                while await of_others() != expected:
                    await asyncio.sleep(0.05)

        await hears([20, 0])
        site.engines[0].behaviour = site.engines[1].behaviour
        load = asyncio.create_task(paced(clients[1], key, 60))
        await asyncio.sleep(0.5)
        before = len(site.engines[0].seen.calls)
        half.kill()
        gone = await asyncio.gather(*flooding, return_exceptions=True)
        assert all(isinstance(one, Exception) for one in gone)
        await until(lambda: site.engines[0].seen.abandoned == 20)
        answers = await load
        assert {answer.status for answer in answers} == {200}
        assert not any(b'"error"' in answer.content for answer in answers)
        await hears([0, 0])
        await asyncio.gather(*(clients[1].chat(key, f"again {n}") for n in range(8)))
        assert len(site.engines[0].seen.calls) > before, "it is used again"
        for client in clients:
            await client.close()
