"""`scopekv explain` where there is nothing to explain."""

from __future__ import annotations

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
