"""Prompts that lose what the cache could have given, each with its true cause; and clean ones.

Pairs of chats of one caller: the earlier one, and the one that missed.
"""

from __future__ import annotations

import copy
from typing import Any

from scopekv.core.explaining import MissCause
from scopekv.simulate.stage import text_of

Chat = dict[str, Any]
MODEL = "SmolLM2-135M-Instruct"
RULES = text_of("rules of the house", 120)
MANUAL = text_of("the manual", 160)
DECOMPOSED, COMPOSED = "Cafe\u0301 ", "Caf\u00e9 "


def chat(system: str, *turns: str, **fields: Any) -> Chat:
    """A chat of a system text and turns that alternate, the user first."""
    roles = ("user", "assistant")
    messages = [{"role": "system", "content": system}] if system else []
    messages += [{"role": roles[i % 2], "content": text} for i, text in enumerate(turns)]
    return {"model": MODEL, "messages": messages, **fields}


def tool(name: str, **properties: Any) -> Chat:
    schema = {"type": "object", "properties": properties or {"q": {"type": "string"}}}
    about = text_of(f"about {name}", 30)
    return {
        "type": "function",
        "function": {"name": name, "description": about, "parameters": schema},
    }


def reordered(value: Chat) -> Chat:
    """The same tool, the keys of its schema the other way round."""
    other = copy.deepcopy(value)
    schema = other["function"]["parameters"]
    schema["properties"] = dict(reversed(list(schema["properties"].items())))
    return other


SEARCH = tool("search", first={"type": "string"}, second={"type": "number"})
SEND, LOOK = tool("send"), tool("look")
TALK = [text_of(f"turn {number}", 50) for number in range(9)]

BROKEN: list[tuple[str, MissCause, Chat, Chat]] = [
    (
        "an ISO time at the head of the system text",
        MissCause.TIME,
        chat(f"It is 2026-03-01 10:15. {RULES}", "hi"),
        chat(f"It is 2026-03-01 10:16. {RULES}", "hi"),
    ),
    (
        "a date in words",
        MissCause.TIME,
        chat(f"Today is March 3, 2026. {RULES}", "hi"),
        chat(f"Today is March 4, 2026. {RULES}", "hi"),
    ),
    (
        "a weekday",
        MissCause.TIME,
        chat(f"Happy Monday! {RULES}", "hi"),
        chat(f"Happy Tuesday! {RULES}", "hi"),
    ),
    (
        "a Unix time",
        MissCause.TIME,
        chat(f"now=1764000000 {RULES}", "hi"),
        chat(f"now=1764000123 {RULES}", "hi"),
    ),
    (
        "a uuid",
        MissCause.IDENTIFIER,
        chat(f"Request 7b1c9d5e-1111-4222-8333-444455556666. {RULES}", "hi"),
        chat(f"Request 0a9b8c7d-9999-4888-8777-666655554444. {RULES}", "hi"),
    ),
    (
        "a session id",
        MissCause.IDENTIFIER,
        chat(f"session_id: a81kf0 {RULES}", "hi"),
        chat(f"session_id: zz93la {RULES}", "hi"),
    ),
    (
        "a hexadecimal trace",
        MissCause.IDENTIFIER,
        chat(f"[4fd1c2aa90bc11de] {RULES}", "hi"),
        chat(f"[90aa11de4fd1c2bc] {RULES}", "hi"),
    ),
    (
        "the user's name",
        MissCause.USER_FIELD,
        chat(f"User name: Alice Adams. {RULES}", "hi"),
        chat(f"User name: Bob Brown. {RULES}", "hi"),
    ),
    (
        "an e-mail address",
        MissCause.USER_FIELD,
        chat(f"You write for alice@example.com only. {RULES}", "hi"),
        chat(f"You write for bob@example.org only. {RULES}", "hi"),
    ),
    (
        "an agent's billing line",
        MissCause.AGENT_NONCE,
        chat(f"x-agent-billing-header: cch=81a2b; {RULES}", "hi"),
        chat(f"x-agent-billing-header: cch=77f01; {RULES}", "hi"),
    ),
    (
        "a counter of steps",
        MissCause.AGENT_NONCE,
        chat(f"You are at step 3 of 20. {RULES}", "hi"),
        chat(f"You are at step 4 of 20. {RULES}", "hi"),
    ),
    (
        "tools in another order",
        MissCause.TOOL_ORDER,
        chat(RULES, "hi", tools=[SEARCH, SEND, LOOK]),
        chat(RULES, "hi", tools=[SEND, SEARCH, LOOK]),
    ),
    (
        "a schema's keys in another order",
        MissCause.TOOL_SCHEMA_ORDER,
        chat(RULES, "hi", tools=[SEARCH, SEND]),
        chat(RULES, "hi", tools=[reordered(SEARCH), SEND]),
    ),
    (
        "one tool fewer",
        MissCause.TOOLS_CHANGED,
        chat(RULES, "hi", tools=[SEARCH, SEND, LOOK]),
        chat(RULES, "hi", tools=[SEARCH, LOOK]),
    ),
    (
        "line ends",
        MissCause.WHITE_SPACE,
        chat(RULES.replace(" ", "\n", 1), "hi"),
        chat(RULES.replace(" ", "\r\n", 1), "hi"),
    ),
    (
        "a doubled blank",
        MissCause.WHITE_SPACE,
        chat(RULES, "hi"),
        chat(RULES.replace(" ", "  ", 3), "hi"),
    ),
    (
        "decomposed letters",
        MissCause.UNICODE_FORM,
        chat(COMPOSED + RULES, "hi"),
        chat(DECOMPOSED + RULES, "hi"),
    ),
    (
        "another instruction in the middle of the system text",
        MissCause.SYSTEM_CHANGED,
        chat(f"Be brief. {RULES}", "hi"),
        chat(f"Write at length. {RULES}", "hi"),
    ),
    (
        "an answer rewritten",
        MissCause.HISTORY_EDITED,
        chat("", *TALK[:5]),
        chat("", TALK[0], "I would rather not say. " + TALK[1], *TALK[2:7]),
    ),
    (
        "the first turns dropped",
        MissCause.HISTORY_DROPPED,
        chat(RULES, *TALK[:7]),
        chat(RULES, *TALK[2:9]),
    ),
    (
        "the first turns summarised",
        MissCause.HISTORY_SUMMARISED,
        chat(RULES, *TALK[:7]),
        chat(RULES, "So far we greeted each other.", *TALK[3:8]),
    ),
    (
        "the question before the manual",
        MissCause.PRIVATE_FIRST,
        chat("", f"How many days off are there? {MANUAL}"),
        chat("", f"Who approves a loan? {MANUAL}"),
    ),
    (
        "a private message before the shared ones",
        MissCause.PRIVATE_FIRST,
        chat("", f"My salary is high. {MANUAL}"),
        chat("", f"I was ill on my holiday. {MANUAL}"),
    ),
    (
        "another adapter",
        MissCause.MODEL_CHANGED,
        chat(RULES, "hi"),
        chat(RULES, "hi") | {"model": f"{MODEL}-legal"},
    ),
    (
        "a common text shorter than a block",
        MissCause.BLOCK_ROUNDING,
        chat("Be brief.", text_of("first question", 60)),
        chat("Be brief.", text_of("second question", 60)),
    ),
]

CLEAN: list[tuple[str, Chat, Chat]] = [
    ("the same again", chat(RULES, "hi"), chat(RULES, "hi")),
    ("a conversation that grows", chat(RULES, *TALK[:3]), chat(RULES, *TALK[:5])),
    ("a long one that grows", chat(RULES, *TALK[:5]), chat(RULES, *TALK[:7])),
    ("another question at the end", chat(RULES, TALK[0]), chat(RULES, TALK[1])),
    (
        "another question after the manual",
        chat("", f"{MANUAL}\n\nHow many days?"),
        chat("", f"{MANUAL}\n\nWho approves?"),
    ),
    (
        "the same tools, another question",
        chat(RULES, TALK[0], tools=[SEARCH, SEND]),
        chat(RULES, TALK[1], tools=[SEARCH, SEND]),
    ),
    (
        "a time in the last message",
        chat(RULES, "It is 10:15. What now?"),
        chat(RULES, "It is 10:16. What now?"),
    ),
    ("the last answer asked for anew", chat(RULES, *TALK[:3]), chat(RULES, *TALK[:3])),
    ("a branch of a conversation", chat(RULES, *TALK[:5]), chat(RULES, *TALK[:2], TALK[8])),
    ("without a system text", chat("", *TALK[:3]), chat("", *TALK[:5])),
]
