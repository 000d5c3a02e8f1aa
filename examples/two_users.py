"""Two users of two organisations ask about one public document, through the OpenAI client.

Run it beside `make serve`:  .venv/bin/python examples/two_users.py ALICE_KEY BOB_KEY [URL]
"""

import sys
from pathlib import Path

from openai import APIConnectionError, AuthenticationError, OpenAI

BASE_URL = "http://127.0.0.1:8080/v1"
MANUAL = Path(__file__).parents[1] / "src/scopekv/cli/demo/lantern-manual.md"
QUESTION = (
    "Our station stands on the roof of the north barn and has shown three reports in a row with "
    "brackets around the wind. It was minus four degrees last night. What should we look at first?"
)


def ask(who: str, key: str, url: str) -> None:
    client = OpenAI(base_url=url, api_key=key, default_headers={"X-ScopeKV-Detail": "1"})
    answer = client.chat.completions.create(
        model=client.models.list().data[0].id,
        messages=[
            {"role": "system", "content": MANUAL.read_text("utf-8")},
            {"role": "user", "content": QUESTION},
        ],
        max_tokens=32,
        temperature=0,
    )
    usage = answer.usage
    if usage is None or usage.prompt_tokens_details is None:
        sys.exit("the engine does not count cached tokens: start it with make serve")
    print(f"{who}: {usage.prompt_tokens_details.cached_tokens} of {usage.prompt_tokens} cached")
    for segment in (answer.model_extra or {})["scopekv"]["segments"]:
        print(f"    {segment['scope']:9} {segment['cached_tokens']:5} of {segment['tokens']}")


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    alice, bob, *rest = sys.argv[1:]
    url = rest[0] if rest else BASE_URL
    try:
        ask("alice, first time", alice, url)
        ask("bob, same question", bob, url)
        ask("alice, once more", alice, url)
    except AuthenticationError:
        sys.exit("a key is not valid: copy both from the latest `make serve`, which makes new ones")
    except APIConnectionError:
        sys.exit(f"nothing answers at {url}: start make serve, or add the URL that it printed")
