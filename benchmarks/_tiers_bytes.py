"""Bytes per second of a sealed directory tier, of vLLM's plain `fs` tier, and of LMCache's AES.

All move the same blocks between one host buffer and the same disk, in jobs of `JOB_BLOCKS`, each
round in a folder of its own, taking turns. vLLM's tier is its real `FileSystemTierManager`: as it
comes (O_DIRECT where the disk takes it), and with O_DIRECT switched off (page cache, as ours).
Of LMCache the AES-256-GCM serializer alone is measured, from memory to memory, in a process of its
own, and beside it ours alone ("sealing"): what stands before a store in either.

    sealed_over_lmcache_aes         our whole tier, disk included, over their serializer alone
    sealing_over_lmcache_aes        ours alone over theirs alone
    sealed_over_lmcache_aes_and_fs  our whole tier over their serializer and vLLM's `fs` tier, one
                                    after the other: computed from the two, not measured together
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Any

from _tiers_moves import BLOCK_BYTES, JOB_BLOCKS, Host, block_name, opened

from scopekv.core.chains import Chain
from scopekv.core.sealing import OVERHEAD_BYTES
from scopekv.simulate.sealed_tier import NAMESPACE, SimulatedBroker, link
from scopekv.store.keyring import Keyring
from scopekv.store.sealed_objects import Address, SealedObjects

THREADS = (1, 2)
POLL_SECONDS = 0.0002
LMCACHE = ("lmcache==0.5.6", "numba", "llvmlite", "sortedcontainers")
SYSTEMS = ("fs", "fs_buffered", "sealed")


def sealing(host: Host, outs: list[memoryview], threads: int) -> tuple[float, float]:
    """Seconds to seal every block into its place in `outs`, and to open them and copy them back.

    Places that earlier rounds have written to, as LMCache's are: no page is new.
    """
    with ExitStack() as stack:
        keyring = Keyring(SimulatedBroker())
        stack.callback(keyring.close)
        chain = (link("organisation"), link("user"))
        keyring.accept(SimulatedBroker().lease_of(one) for one in chain)
        objects = SealedObjects(keyring, NAMESPACE, host.block_bytes)
        host.fill()

        def seal(index: int) -> None:
            objects.seal(_address(objects, chain, index), host.slot(index), outs[index])

        def open_(index: int) -> None:
            address = _address(objects, chain, index)
            host.slot(index)[:] = objects.open(address, outs[index])

        spent = []
        for step in (seal, open_):
            pool = stack.enter_context(ThreadPoolExecutor(threads))
            list(pool.map(int, range(threads)))  # the threads are up
            began = time.perf_counter()
            list(pool.map(step, range(host.blocks)))
            spent.append(time.perf_counter() - began)
            if step is seal:
                host.clear()
    host.check()
    return spent[0], spent[1]


def _address(objects: SealedObjects, chain: Chain, index: int) -> Address:
    address = objects.address(chain, block_name(index), 0)
    if address is None:
        raise RuntimeError("there is no lease")
    return address


def _timed(submit: Callable[[int, int], None], poll: Callable[[], int], blocks: int) -> float:
    began, moved = time.perf_counter(), 0
    for first in range(0, blocks, JOB_BLOCKS):
        submit(first, min(JOB_BLOCKS, blocks - first))
    while moved < blocks:
        moved += poll()
        if time.perf_counter() - began > 120:
            raise RuntimeError(f"only {moved} of {blocks} blocks were moved")
        time.sleep(POLL_SECONDS)
    return time.perf_counter() - began


def one_round(system: str, folder: Path, host: Host, threads: int) -> tuple[float, float]:
    """Seconds to store and to load every block, in a fresh folder."""
    host.fill()
    with opened(system, folder, host, threads) as tier:
        storing = _timed(tier.store, tier.poll, host.blocks)
        host.clear()
        loading = _timed(tier.load, tier.poll, host.blocks)
    host.check()
    return storing, loading


def measure(work: Path, *, rounds: int, blocks: int) -> dict[str, Any]:
    """All cells. `work` lies on the disk that is measured."""
    cells = []
    for block_bytes, threads in product(BLOCK_BYTES, THREADS):
        host = Host(block_bytes, blocks)
        outs = [memoryview(bytearray(block_bytes + OVERHEAD_BYTES)) for _ in range(blocks)]
        seconds: dict[str, list[tuple[float, float]]] = {
            system: [] for system in (*SYSTEMS, "sealing")
        }
        for number in range(-1, rounds):  # the first warms up and does not count
            turn = SYSTEMS[number % 3 :] + SYSTEMS[: number % 3]
            for system in turn:
                spent = one_round(system, work / f"{system}-{number}", host, threads)
                if number >= 0:
                    seconds[system].append(spent)
            alone = sealing(host, outs, threads)
            if number >= 0:
                seconds["sealing"].append(alone)
            print(f"bytes: {block_bytes}, {threads} threads, round {number + 1}/{rounds}", end="\r")
        cells.append(_cell(seconds, block_bytes, threads, blocks))
    lmcache = _lmcache(work, rounds=rounds, blocks=blocks)
    return _figures(cells, lmcache) | {"bytes_cells": cells, "fs_o_direct": _o_direct(work)}


def _cell(
    seconds: dict[str, list[tuple[float, float]]], block_bytes: int, threads: int, blocks: int
) -> dict[str, Any]:
    megabytes = block_bytes * blocks / 1e6
    cell: dict[str, Any] = {"block_bytes": block_bytes, "threads": threads}
    for system, spent in seconds.items():
        for place, name in enumerate(("store", "load")):
            cell[f"{system}_{name}"] = megabytes / statistics.median(s[place] for s in spent)
        cell[f"{system}_both"] = megabytes / statistics.median(s + t for s, t in spent)
    for plain, (place, name) in product(SYSTEMS[:2], enumerate(("store", "load"))):
        pairs = zip(seconds[plain], seconds["sealed"], strict=True)
        cell[f"sealed_over_{plain}_{name}"] = statistics.median(
            theirs[place] / ours[place] for theirs, ours in pairs
        )
    return cell


def _figures(cells: list[dict[str, Any]], lmcache: dict[str, float]) -> dict[str, float]:
    """Ratios: the worst of the cells. Against `fs` of neighbours in time, median over rounds."""
    figures = {}
    for plain, way in product(SYSTEMS[:2], ("store", "load")):
        name = f"sealed_over_{plain}_{way}"
        figures[name] = min(cell[name] for cell in cells)
    if lmcache:
        for cell in cells:
            _beside(cell, lmcache)
        for name in ("sealed_over_lmcache_aes", "sealing_over_lmcache_aes"):
            ours = name.partition("_")[0]
            figures[name] = min(cell[f"{ours}_both"] / cell["lmcache_both"] for cell in cells)
        figures["sealed_over_lmcache_aes_and_fs"] = min(
            cell["sealed_both"] / cell["lmcache_and_fs_both"] for cell in cells
        )
    return figures


def _beside(cell: dict[str, Any], lmcache: dict[str, float]) -> None:
    """Add LMCache's MB/s to a cell, alone and with vLLM's tier after it."""
    for way in ("store", "load", "both"):
        alone = lmcache[f"{cell['block_bytes']}/{cell['threads']}/{way}"]
        cell[f"lmcache_{way}"] = alone
        cell[f"lmcache_and_fs_{way}"] = 1 / (1 / alone + 1 / cell[f"fs_{way}"])


def _o_direct(work: Path) -> bool:
    from vllm.v1.kv_offload.tiering.fs.io import probe_o_direct

    return bool(probe_o_direct(str(work)))


def _lmcache(work: Path, *, rounds: int, blocks: int) -> dict[str, float]:
    """MB/s of LMCache's serializer, by "block bytes/threads/way"; empty where it does not install.

    Its wheel asks for CUDA packages that a CPU has no use for, so it is installed without them,
    for this run, into a folder of its own.
    """
    uv = shutil.which("uv") or str(Path(sys.executable).with_name("uv"))
    target = work / "lmcache"
    command = [uv, "pip", "install", "-q", "--python", sys.executable, "--target", str(target)]
    if subprocess.run([*command, "--no-deps", *LMCACHE], check=False, timeout=300).returncode:
        print("LMCache could not be installed, and is not measured")
        return {}
    script = Path(__file__).with_name("_tiers_lmcache.py")
    environment = os.environ | {"PYTHONPATH": str(target), "LMCACHE_LOG_LEVEL": "ERROR"}
    cells = [f"{size}/{threads}" for size, threads in product(BLOCK_BYTES, THREADS)]
    arguments = [str(rounds), str(blocks), *cells]
    found = subprocess.run(
        [sys.executable, str(script), *arguments],
        env=environment,
        check=True,
        timeout=600,
        stdout=subprocess.PIPE,
    )
    result: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return result


def table(figures: dict[str, Any]) -> str:
    """MB/s of every cell, store / load."""
    names = ("fs", "fs_buffered", "sealed", "sealing", "lmcache", "lmcache_and_fs")
    lines = [f"{'MB/s, store / load':24}" + "".join(f"{name:>18}" for name in names)]
    for cell in figures["bytes_cells"]:
        row = f"{cell['block_bytes']:>9} B, {cell['threads']} threads  "
        for name in names:
            pair = [cell.get(f"{name}_{way}", 0.0) for way in ("store", "load")]
            row += f"{pair[0]:10.0f} /{pair[1]:6.0f}"
        lines.append(row)
    mode = "O_DIRECT" if figures["fs_o_direct"] else "no O_DIRECT on this disk"
    return "\n".join([*lines, f"fs: as vLLM sets it up ({mode}); fs_buffered: page cache"])
