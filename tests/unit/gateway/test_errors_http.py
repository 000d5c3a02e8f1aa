"""The one table of errors, and when a client that was too much may come back."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable

import pytest

from scopekv import errors
from scopekv.gateway.apis import messages
from scopekv.gateway.cached_contents import forms
from scopekv.gateway.errors_http import TABLE, failure_of, http_error
from scopekv.gateway.http.messages import Failure


def test_the_table_of_errors_is_complete() -> None:
    """Every error class of `errors`, and no other, has its row; all errors of ours are there."""
    classes = {
        item
        for _, item in inspect.getmembers(errors, inspect.isclass)
        if issubclass(item, errors.ScopeKVError)
    }
    assert classes == set(TABLE)
    for row in TABLE.values():
        assert 400 <= row.status < 600
        assert row.kind
        assert row.code
        assert bool(row.message) == (row.status >= 500), "the cause of a fault stays inside"


def test_an_error_that_is_not_ours_shows_nothing() -> None:
    status, body = http_error(RuntimeError("secret detail"))
    assert status == 500
    assert "secret" not in json.dumps(body)
    status, body = http_error(errors.NotFound("no model x"), param="model", code="model_not_found")
    assert (status, body["error"]["param"], body["error"]["code"]) == (
        404,
        "model",
        "model_not_found",
    )


@pytest.mark.parametrize("worded", [lambda failure: failure, messages.worded, forms.worded])
def test_an_overload_says_when_to_come_back_in_each_apis_form(
    worded: Callable[[Failure], Failure],
) -> None:
    failure = worded(failure_of(errors.Overloaded("too much", retry_after_seconds=7)))
    answer = failure.response()
    assert (answer.status, (b"retry-after", b"7") in answer.headers) == (429, True)
    other = worded(failure_of(errors.Unavailable("gone"))).response()
    assert b"retry-after" not in dict(other.headers)
