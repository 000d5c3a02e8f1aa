"""What a gateway needs to render and tokenise as this very server does: its template, verbatim."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger("vllm.scopekv")


def template_of(state: Any) -> dict[str, Any]:
    """Return the server's tokenizer, chat templates and defaults.

    `renderable` is False where prompts are not made by a Hugging Face tokenizer and a Jinja
    template (Mistral, Harmony): a gateway then leaves rendering to the engine.
    """
    names = [model.name for model in state.openai_serving_models.base_model_paths]
    answer: dict[str, Any] = {"models": names, "renderable": False}
    try:
        return answer | _rendering(state.online_renderer)
    except (AttributeError, ImportError, TypeError, ValueError) as error:
        log.warning("prompts are left to the engine: %s", type(error).__name__)
        return answer


def _rendering(renderer: Any) -> dict[str, Any]:
    config, tokenizer = renderer.model_config, renderer.renderer.tokenizer
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or renderer.use_harmony or config.enable_prompt_embeds:
        return {}
    plain = _chat_template(renderer, tokenizer, None)
    with_tools = _chat_template(renderer, tokenizer, [{}])
    special = {
        key: str(value)
        for key, value in tokenizer.special_tokens_map.items()
        if isinstance(value, str)
    }
    return {
        "renderable": True,
        "tokenizer": backend.to_str(),
        "chat_template": plain,
        "tool_template": with_tools,
        "content_format": _content_format(renderer, tokenizer, plain),
        "template_kwargs": dict(renderer.default_chat_template_kwargs),
        "special_tokens": special,
        "tool_shape": _tool_shape(),
        "drops_unused_tools": bool(renderer.exclude_tools_when_tool_choice_none),
    }


def _chat_template(renderer: Any, tokenizer: Any, tools: Any) -> str | None:
    from vllm.renderers.hf import resolve_chat_template

    return resolve_chat_template(
        tokenizer, renderer.chat_template, tools, model_config=renderer.model_config
    )


def _tool_shape() -> dict[str, Any]:
    """A tool as this version hands it to templates: which fields, in which order, what defaults."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionToolsParam

    tool = ChatCompletionToolsParam.model_validate({"function": {"name": ""}})
    shape: dict[str, Any] = tool.model_dump()
    return shape


def _content_format(renderer: Any, tokenizer: Any, template: str | None) -> str:
    from vllm.renderers.hf import resolve_chat_template_content_format

    return resolve_chat_template_content_format(
        template,
        None,
        renderer.chat_template_content_format,
        tokenizer,
        model_config=renderer.model_config,
    )
