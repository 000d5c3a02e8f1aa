"""`scopekv lint` over files: exact places, SARIF, exit codes, files of no use."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from scopekv.cli.lint import lint
from scopekv.simulate.stage import text_of


def run(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(lint, [*arguments, "--model-dir", str(folder)])


def chat(system: str, question: str) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return {"model": "m", "messages": messages}


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three chats under a clock, then two that are well made."""
    rules = text_of("lint rules", 80)
    made = [chat(f"It is 10:{minute} now. {rules}", "hi") for minute in (15, 16, 17)]
    made += [chat(rules, question) for question in ("one", "two")]
    file = tmp_path / "log.jsonl"
    file.write_text("\n".join(map(json.dumps, made)))
    return file


def test_each_request_is_compared_with_those_before_it(model_dir: Path, log: Path) -> None:
    rows = json.loads(run(model_dir, str(log), "--json").stdout)
    codes = [[cause["code"] for cause in row["causes"]] for row in rows]
    assert codes[:3] == [["cold"], ["time"], ["time"]]
    assert codes[4] == []
    assert rows[4]["compared_with_line"] == 4
    assert rows[4]["expected_tokens"] % 32 == 0
    assert rows[4]["expected_tokens"] > 100


def test_sarif_and_the_exit_code(model_dir: Path, log: Path) -> None:
    result = run(model_dir, str(log), "--sarif", "--fail-on", "confirmed")
    (one,) = json.loads(result.stdout)["runs"]
    places = [r["locations"][0]["physicalLocation"]["region"]["startLine"] for r in one["results"]]
    assert result.exit_code == 1
    assert places[:2] == [2, 3]
    assert {r["ruleId"] for r in one["results"]} <= {
        r["id"] for r in one["tool"]["driver"]["rules"]
    }
    assert run(model_dir, str(log)).exit_code == 0


def test_every_api_in_one_file(model_dir: Path, tmp_path: Path) -> None:
    text = text_of("lint apis", 80)
    bodies = [
        {"model": "m", "prompt": text},
        {"model": "m", "input": text},
        {"api": "/v1/messages", "body": {"messages": [{"role": "user", "content": text}]}},
        chat(text, "hi"),
        {"model": "m", "prompt": [1, 2]},
    ]
    file = tmp_path / "all.json"
    file.write_text(json.dumps(bodies))
    result = run(model_dir, str(file))
    assert result.exit_code == 0, result.output


PIXELS = "data:image/png;base64,"
IMAGES: dict[str, tuple[str, Any]] = {
    "/v1/chat/completions": ("text", {"type": "image_url", "image_url": {"url": PIXELS}}),
    "/v1/messages": ("text", {"type": "image", "source": {"type": "base64", "data": PIXELS}}),
    "/v1/responses": ("input_text", {"type": "input_image", "image_url": PIXELS}),
}


@pytest.mark.parametrize("path", IMAGES)
def test_a_message_is_read_to_its_end_whatever_images_are_in_it(
    model_dir: Path, tmp_path: Path, path: str
) -> None:
    kind, image = IMAGES[path]
    other = json.loads(json.dumps(image).replace("png", "gif"))
    rules = text_of("lint images", 80)

    def asked(image: Any, clock: str) -> dict[str, Any]:
        parts = [image, {"type": kind, "text": f"It is {clock} now. {rules}"}]
        said = [{"role": "user", "content": parts}]
        name = "input" if path == "/v1/responses" else "messages"
        return {"api": path, "body": {name: said, "max_tokens": 1}}

    file = tmp_path / "log.json"
    requests = [(image, "10:15"), (image, "10:15"), (image, "10:16"), (other, "10:15")]
    file.write_text(json.dumps([asked(*one) for one in requests]))
    rows = json.loads(run(model_dir, str(file), "--json").stdout)
    assert [row["media"] for row in rows] == [1, 1, 1, 1]
    assert [[cause["code"] for cause in row["causes"]] for row in rows[:3]] == [
        ["cold"],
        [],
        ["time"],
    ]
    assert rows[3]["common_tokens"] < rows[2]["common_tokens"], "another image parts them first"
    assert "a few tokens each: 1 parts" in run(model_dir, str(file)).output


def test_media_in_results_of_tools_and_unknown_parts(model_dir: Path, tmp_path: Path) -> None:
    _, image = IMAGES["/v1/messages"]
    result = {"type": "tool_result", "tool_use_id": "t", "content": [image]}
    use = {"type": "tool_use", "id": "t", "name": "look", "input": {}}
    said = [
        {"role": "user", "content": "look"},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    file = tmp_path / "log.json"
    file.write_text(json.dumps([{"api": "/v1/messages", "body": {"messages": said}}]))
    (row,) = json.loads(run(model_dir, str(file), "--json").stdout)
    assert row["media"] == 1
    odd = {"messages": [{"role": "user", "content": [{"type": "odd"}]}]}
    file.write_text(json.dumps([odd]))
    assert "log.json:1: a part that is not text" in run(model_dir, str(file)).output


def test_files_as_other_programs_write_them(model_dir: Path, tmp_path: Path) -> None:
    """A byte order mark, CRLF, line separators inside texts, OpenAI's batch form."""
    text = text_of("lint forms", 80) + "\u2028\x85"
    bodies: list[dict[str, Any]] = [chat(text, "one"), chat(text, "two")]
    bodies += [{"custom_id": "1", "url": "/v1/chat/completions", "body": chat(text, "three")}]
    file = tmp_path / "log.jsonl"
    lines = "\r\n".join(json.dumps(one, ensure_ascii=False) for one in bodies)
    file.write_bytes(b"\xef\xbb\xbf" + lines.encode())
    rows = json.loads(run(model_dir, str(file), "--json").stdout)
    assert [row["line"] for row in rows] == [1, 2, 3]
    assert min(row["expected_tokens"] for row in rows[1:]) > 100
    file.write_bytes("é".encode("latin-1"))
    assert ":1: not JSON in UTF-8" in run(model_dir, str(file)).output


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", ":1: not JSON"),
        ('{"model": "m", "messages": []}', ":1: messages"),
        ("[1]", ":1: a request must be"),
        ('{"api": "/v2", "body": {}}', ":1: no such API"),
        ('{"api": ["/v2"], "body": {}}', ":1: no such API"),
        ('{"model": "m", "prompt": [[1, 2], [3]]}', ":1: only one prompt"),
        ('\n{"prompt": "\\ud800"}', ":2: not JSON in UTF-8"),
        ("\n\n", "no request is in it"),
        ("[]", "no request is in it"),
    ],
)
def test_files_of_no_use_are_refused_with_their_line(
    model_dir: Path, tmp_path: Path, content: str, says: str
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(content)
    result = run(model_dir, str(file))
    assert result.exit_code == 1
    assert says in result.output
    assert "Traceback" not in result.output
