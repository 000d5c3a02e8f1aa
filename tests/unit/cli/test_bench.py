"""`scopekv bench article`: texts, the four modes on simulated engines, the report, its errors."""

from __future__ import annotations

import asyncio
import io
import json
import math
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console
from tokenizers import Tokenizer

from scopekv.cli.bench import bench
from scopekv.cli.benchmark import chart, report
from scopekv.cli.benchmark.modes import Article
from scopekv.cli.benchmark.stages import EngineChoice, ScopedStage, prepare
from scopekv.cli.benchmark.texts import make_texts
from scopekv.core.article import Mode, Shape
from scopekv.engines.embedded import EngineInstance
from scopekv.engines.model import MODEL_NAME
from scopekv.errors import ConfigError, Misuse
from scopekv.gateway.instances import InstanceAddress
from scopekv.simulate.deployment import Deployment
from scopekv.simulate.engine import SimulatedEngine
from scopekv.simulate.model import SimulatedModel

SHAPE = Shape(users=3, requests=4, document_tokens=330, question_tokens=70)
KEY = "engine-key"
WHOLE = 320  # tokens of the document's whole blocks


def article_of(model_dir: Path, deadline: float | None = None) -> Article:
    texts = make_texts(model_dir / "tokenizer.json", SHAPE, 1)
    return Article(SHAPE, texts, lambda *_: None, lambda *_: None, deadline)


@pytest.fixture(scope="module")
def measured(model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Article:
    """One whole run, for every test that looks at its result."""
    folder = tmp_path_factory.mktemp("article")
    return asyncio.run(run_article(article_of(model_dir), model_dir, folder))


async def run_article(article: Article, model_dir: Path, folder: Path) -> Article:
    """All four modes on simulated engines, with a real gateway before the second."""
    model = SimulatedModel.load(model_dir)
    async with SimulatedEngine(model, keys_path=None, api_key=KEY) as stock:
        await article.stock(stock.url, KEY, MODEL_NAME)
    deployment = Deployment(folder)
    try:
        keys = prepare(deployment.world, article.texts.document, SHAPE.users)
        async with SimulatedEngine(model, keys_path=deployment.keys_path, api_key=KEY) as engine:
            await deployment.start([InstanceAddress("engine-0", engine.url, KEY)])
            instance = EngineInstance("engine-0", engine.url, KEY, 0)
            stage = ScopedStage(deployment.url, instance, keys, deployment.gateway)
            await article.scopekv(stage, MODEL_NAME)
    finally:
        await deployment.stop()
    return article


def test_the_four_modes_share_what_they_should(measured: Article) -> None:
    cached = {mode: result.cached_tokens for mode, result in measured.results.items()}
    assert cached == {
        Mode.NONE: 0,
        Mode.PER_USER_SALT: WHOLE * 3 * 3,
        Mode.ONE_GROUP: WHOLE * (3 * 4 - 1),
        Mode.SCOPEKV: WHOLE * 3 * 4,
    }
    hits = {mode: r.private_hits_across_users for mode, r in measured.results.items()}
    assert hits.pop(Mode.ONE_GROUP) > 0, "a probe that finds nothing anywhere proves nothing"
    assert set(hits.values()) == {0}
    assert {r.cached_tokens_spread for r in measured.results.values()} == {0}
    assert measured.results[Mode.SCOPEKV].requests_measured == SHAPE.count


async def test_without_time_a_sample_is_measured_and_said(model_dir: Path, tmp_path: Path) -> None:
    article = await run_article(article_of(model_dir, time.monotonic()), model_dir, tmp_path)
    assert article.results[Mode.PER_USER_SALT].cached_tokens == WHOLE * 3 * 3
    assert article.results[Mode.PER_USER_SALT].requests_measured < SHAPE.count
    assert any("--budget-minutes 0" in line for line in report.notes(article.results))


def test_json_and_table_and_chart(measured: Article, tmp_path: Path) -> None:
    found = report.as_json(measured, seed=1, dtype="float32", total_seconds=1.0)
    assert list(found["modes"]) == ["none", "per_user_salt", "one_group", "scopekv"]
    for figures in found["modes"].values():
        assert {
            *("token_hit_rate", "prefilled_tokens", "private_hits_across_users"),
            *("first_ttft_ms_p50", "first_ttft_ms_p99", "later_ttft_ms_p50", "later_ttft_ms_p99"),
        } <= figures.keys()
        assert all(math.isfinite(value) for value in figures.values())
    assert json.loads(json.dumps(found)) == found
    console = Console(width=100, record=True, file=io.StringIO())
    report.show(measured, console)
    assert "one trust group" in console.export_text()
    pytest.importorskip("matplotlib")
    picture = tmp_path / "article.png"
    chart.draw(chart.load_pyplot(), measured.results, SHAPE, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_texts_have_exactly_the_tokens_asked_for(model_dir: Path) -> None:
    file = model_dir / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(file))
    texts = make_texts(file, SHAPE, 7)
    assert len(tokenizer.encode(texts.document).ids) == SHAPE.document_tokens
    for user, asked in enumerate(texts.questions):
        for request, question in enumerate(asked):
            ids = tokenizer.encode(texts.document + question).ids
            assert tuple(ids) == texts.prompts[user][request]
            assert len(ids) == SHAPE.prompt_tokens
    prompts = {prompt for user in texts.prompts for prompt in user}
    assert len(prompts) == SHAPE.count
    shared = min(SHAPE.document_tokens + 32, SHAPE.prompt_tokens)
    assert len({prompt[:shared] for prompt in prompts}) == SHAPE.count, "they part in one block"
    assert make_texts(file, SHAPE, 7).prompts == texts.prompts


def test_texts_that_are_too_short_to_write_are_refused(model_dir: Path) -> None:
    with pytest.raises(Misuse, match="ask for more tokens"):
        make_texts(model_dir / "tokenizer.json", Shape(2, 2, 330, 3), 1)


def test_kv_memory_is_reckoned_from_the_model(model_dir: Path, tmp_path: Path) -> None:
    choice = EngineChoice(model_dir=model_dir, cache_dir=tmp_path)
    assert choice.kv_token_bytes() == 30 * 2 * 3 * 64 * 4
    assert choice.settings(tmp_path, 23_000).kv_cache_gib == 1
    assert choice.settings(tmp_path, 24_000).kv_cache_gib == 2


def test_a_file_that_cannot_be_written_is_told_before_the_run(tmp_path: Path) -> None:
    missing = tmp_path / "nowhere" / "a.json"
    result = CliRunner().invoke(bench, ["article", "--json", str(missing)])
    assert result.exit_code == 1
    assert "make the folder" in result.output


def test_a_chart_without_matplotlib_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ConfigError, match=r"scopekv\[bench\]"):
        chart.load_pyplot()
