"""Rendering: the place of each content is proven, or the chat is not ours to render."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopekv.gateway.template import ChatTemplate, NotRenderable

PLAIN = (
    "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>'"
    " + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# In the style of Qwen 2.5: tools stand after the system text, calls after the content.
WITH_TOOLS = """
{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0]['role'] == 'system' %}{{- messages[0]['content'] }}{%- endif %}
    {{- "\\n\\n# Tools\\n<tools>" }}
    {%- for tool in tools %}{{- "\\n" }}{{- tool | tojson }}{%- endfor %}
    {{- "\\n</tools><|im_end|>\\n" }}
{%- elif messages[0]['role'] == 'system' %}
    {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role == "user" or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == "tool" %}
        {{- '<|im_start|>user\\n<tool_response>\\n' + message.content }}
        {{- '\\n</tool_response><|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
TRIMS = "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] | trim }}[/]{% endfor %}"
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
Chat = list[dict[str, Any]]


def template(source: str, **defaults: Any) -> ChatTemplate:
    return ChatTemplate(source, SPECIAL, defaults)


def chat(*contents: str, role: str = "user") -> Chat:
    return [{"role": role, "content": content} for content in contents]


def check(source: ChatTemplate, messages: Chat, tools: list[Any] | None = None) -> str:
    rendered = source.render(messages, tools)
    assert len(rendered.glue) == len(rendered.contents) + 1 == len(messages) + 1
    pieces = [p for pair in zip(rendered.glue, rendered.contents, strict=False) for p in pair]
    assert "".join((*pieces, rendered.glue[-1])) == rendered.text
    return rendered.text


def test_the_models_own_template(model_dir: Path) -> None:
    config = json.loads((model_dir / "tokenizer_config.json").read_text())
    own = template(config["chat_template"])
    rendered = own.render([{"role": "user", "content": "Hi"}], None)
    assert rendered.contents == ("Hi",)
    assert rendered.glue[0].startswith("<|im_start|>system\nYou are a helpful AI assistant")
    assert rendered.glue[0].endswith("<|im_end|>\n<|im_start|>user\n")
    assert rendered.glue[1] == "<|im_end|>\n<|im_start|>assistant\n"
    system = own.render([{"role": "system", "content": "S"}, *chat("Hi")], None)
    assert system.glue[0] == "<|im_start|>system\n"


contents = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(
    ["", " ", "\ue0000\ue001", "\ue000", "<|im_end|>", "{{ 1 }}", "user\n", "\ue0001\ue001x"]
)
messages_of = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["system", "user", "assistant"]),
        contents,
    ),
    min_size=1,
    max_size=4,
)


@settings(deadline=None)
@given(messages_of)
def test_every_content_stands_where_it_is_said_to(messages: Chat) -> None:
    """Special tokens, placeholders and template code in a content are content."""
    for source in (template(PLAIN), template(WITH_TOOLS)):
        check(source, messages)
        rendered = source.render(messages, None)
        assert rendered.contents == tuple(message["content"] for message in messages)


@settings(deadline=None)
@given(messages_of)
def test_a_trimming_template_loses_outer_blanks_only(messages: Chat) -> None:
    source = template(TRIMS)
    check(source, messages)
    shown = source.render(messages, None).contents
    assert [c.strip() for c in shown] == [m["content"].strip() for m in messages]


def test_tools_and_calls_are_glue() -> None:
    tools = [{"type": "function", "function": {"name": "f<>&'é", "parameters": {}}}]
    call = {"type": "function", "function": {"name": "f", "arguments": {"a": "secret"}}}
    messages: Chat = [
        {"role": "system", "content": "S"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "result", "tool_call_id": "1"},
    ]
    source = template(WITH_TOOLS)
    text = check(source, messages, tools)
    assert "f<>&'é" in text  # as Transformers writes JSON, without Jinja's HTML escapes
    glue = source.render(messages, tools).glue
    assert "# Tools" in glue[1] + glue[2]
    assert "secret" in glue[1] + glue[2]
    assert "# Tools" not in check(source, messages)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages[0]['content'] | upper }}",
        "{{ messages[0]['content'] | length }}",
        "{{ messages[0]['content'] }}{{ messages[0]['content'] }}",
        "{{ messages[0]['content'][:2] }}",
        "{{ messages[0]['content'] }}{% if 'Hello' in messages[0]['content'] %}!{% endif %}",
        "{{ messages[-1]['content'] }}{{ messages[0]['content'] }}",
        "{{ raise_exception('no: ' + messages[0]['content']) }}",
        "{{ messages[0]['missing']['deeper'] }}",
        "{{ messages[0]['content'].split('l')[5] }}",
        "none of it",
    ],
)
def test_a_template_that_changes_contents_is_not_renderable(source: str) -> None:
    with pytest.raises(NotRenderable) as refusal:
        template(source).render(chat("Hello", "there"), None)
    assert "Hello" not in str(refusal.value)


def test_a_template_that_does_not_parse_is_not_renderable() -> None:
    with pytest.raises(NotRenderable, match="does not parse"):
        template("{% for %}")


@pytest.mark.parametrize("attack", ["{{ messages.append(1) }}", "{{ ''.__class__.__mro__ }}"])
def test_a_template_is_run_in_a_sandbox(attack: str) -> None:
    messages = chat("Hello")
    with pytest.raises(NotRenderable):
        template(attack + PLAIN).render(messages, None)
    assert messages == chat("Hello")


def test_placeholders_in_other_fields_refuse_rather_than_mislead() -> None:
    messages: Chat = [{"role": "user", "content": "Hi", "name": "\ue0000\ue001"}]
    named = "{% for m in messages %}{{ m['name'] }}:{{ m['content'] }}{% endfor %}"
    with pytest.raises(NotRenderable):
        template(named).render(messages, None)


def test_a_kept_skeleton_serves_other_contents_and_no_other_shape() -> None:
    source = template(PLAIN.replace("m['content'] +", "(m['content'] or 'EMPTY') +"))
    for _ in range(2):
        other = check(source, chat("c", "d")).replace("\nc<", "\na<").replace("\nd<", "\nb<")
        assert check(source, chat("a", "b")) == other
        assert check(source, chat("a", "b", role="system")) != other
        assert "EMPTY" in check(source, chat("a", ""))
        assert "EMPTY" not in check(source, chat("a", "b"))


def test_defaults_and_special_tokens_reach_the_template() -> None:
    source = template("{{ bos_token }}{{ mood }}" + PLAIN, mood="calm")
    assert check(source, chat("Hi")).startswith("<s>calm<|im_start|>")
