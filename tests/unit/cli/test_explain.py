"""`scopekv explain` where there is nothing to explain."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from scopekv.cli.main import main
from scopekv.cli.running import free_port


def explain(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["explain", *arguments], env={"SCOPEKV_API_KEY": "sk-x"})


def test_a_gateway_out_of_reach_is_named() -> None:
    url = f"http://127.0.0.1:{free_port('127.0.0.1')}"
    result = explain("req_1", "--url", f"{url}/v1")
    assert result.exit_code == 1
    assert f"at {url}: start it, or name it with --url" in result.output
    assert "sk-x" not in result.output


def test_without_a_request_it_says_where_its_name_is() -> None:
    result = explain()
    assert result.exit_code == 2
    assert "X-ScopeKV-Request" in result.output


class _Stranger(BaseHTTPRequestHandler):
    """Answers everything with what the server holds."""

    def do_POST(self) -> None:
        status, content = self.server.answer  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("status", "content"),
    [
        (404, b'{"detail":"Not Found"}'),
        (404, b'{"error":"nope"}'),
        (307, b""),
        (200, b"<html>"),
        (200, b'{"prompt_tokens":1}'),
    ],
)
def test_a_server_that_is_no_gateway_is_named(status: int, content: bytes) -> None:
    with HTTPServer(("127.0.0.1", 0), _Stranger) as server:
        server.answer = status, content  # type: ignore[attr-defined]
        asked = threading.Thread(target=server.handle_request)
        asked.start()
        result = explain("req_1", "--url", f"http://127.0.0.1:{server.server_port}")
        asked.join()
    assert result.exit_code == 1
    assert f"answered {status} and explains nothing: is it a gateway?" in result.output


def test_a_file_that_is_no_body_is_named(tmp_path: Path) -> None:
    file = tmp_path / "deep.json"
    file.write_text("[" * 100_000)
    result = explain("--earlier", str(file), "--later", str(file))
    assert f"{file} is not JSON" in result.output
