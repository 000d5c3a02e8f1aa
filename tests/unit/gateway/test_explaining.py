"""Each broken prompt's true cause comes first; clean ones are met with silence."""

from __future__ import annotations

import pytest

from scopekv.core.explaining import Diagnosis, MissCause, diagnose
from scopekv.gateway.apis.chat import CHAT_API
from scopekv.gateway.explaining import read_prompt
from scopekv.gateway.model_text import read_model_text
from scopekv.gateway.prompts import ModelText
from scopekv.simulate.model import SimulatedModel
from tests.unit.gateway.broken_prompts import BROKEN, CLEAN, Chat

BLOCK = 32


TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}"
    "<|im_end|>\n{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{{ message.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


@pytest.fixture(scope="module")
def text(model: SimulatedModel) -> ModelText:
    """The small model's tokens under a template that shows tools."""
    return read_model_text(
        model.describe() | {"chat_template": TEMPLATE, "tool_template": TEMPLATE}
    )


def compared(text: ModelText, earlier: Chat, later: Chat) -> Diagnosis:
    one, other = (read_prompt(CHAT_API, body, text) for body in (earlier, later))
    return diagnose(one, other, BLOCK)


@pytest.mark.parametrize(
    ("cause", "earlier", "later"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN]
)
def test_the_true_cause_comes_first(
    text: ModelText, cause: MissCause, earlier: Chat, later: Chat
) -> None:
    found = compared(text, earlier, later)
    assert found.causes, "nothing was found"
    first = found.causes[0]
    assert first.code is cause
    assert first.fix
    assert first.tokens_lost > 0
    assert first.token <= found.common_tokens + 1
    assert first.path or cause in (MissCause.BLOCK_ROUNDING, MissCause.TEMPLATE_CHANGED)


@pytest.mark.parametrize(
    ("earlier", "later"), [row[1:] for row in CLEAN], ids=[row[0] for row in CLEAN]
)
def test_it_is_silent_where_nothing_is_wrong(text: ModelText, earlier: Chat, later: Chat) -> None:
    found = compared(text, earlier, later)
    assert found.causes == ()
    assert found.expected_tokens > 0


def test_twenty_five_causes_and_ten_clean_prompts() -> None:
    assert (len(BROKEN), len(CLEAN)) == (25, 10)
