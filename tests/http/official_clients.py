"""The providers' own clients. Over plain HTTP, so none reads certificates: 20 ms of work each.

Their packages are imported where they are used: it takes two seconds of whoever only collects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import anthropic
    import openai


def openai_client(url: str, key: str) -> openai.AsyncOpenAI:
    import openai

    plain = openai.DefaultAsyncHttpxClient(verify=False)
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, http_client=plain)


def anthropic_client(url: str, key: str) -> anthropic.AsyncAnthropic:
    import anthropic

    plain = anthropic.DefaultAsyncHttpxClient(verify=False)
    return anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0, http_client=plain)
