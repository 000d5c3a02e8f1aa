"""More broken prompts, in other words and shapes: Korean, Messages, Responses, tools in use.

Written before `explain` was tried on them: nothing was tuned to these words.
"""

from __future__ import annotations

import copy
import unicodedata
from typing import Any

from scopekv.core.explaining import MissCause
from scopekv.simulate.stage import text_of
from tests.unit.gateway.broken_prompts import MODEL, Chat, chat

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
GUIDE = text_of("guide of the support desk", 120)
REPORT = text_of("report of the year", 150)
TURNS = [text_of(f"exchange {number}", 45) for number in range(10)]
KOREAN = (
    "우리 회사의 고객 지원 규정은 다음과 같다. 모든 문의에는 하루 안에 답한다. "
    "환불은 구매한 날부터 열네 날 동안 받으며 영수증을 확인한다. "
    "배송이 늦으면 먼저 사과하고 위치를 조회한다. 기술 문의는 담당 부서로 넘기고 진행을 알린다. "
    "욕설에는 대응하지 않으며 대화를 정중하게 끝낸다. "
) * 2


def messages(system: Any, *turns: Any, **fields: Any) -> Chat:
    """A body of the Messages API; turns alternate, the user first."""
    roles = ("user", "assistant")
    said = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]
    head = {"system": system} if system else {}
    return {"model": MODEL, "max_tokens": 2, **head, "messages": said, **fields}


def blocks(*texts: str) -> list[Chat]:
    return [{"type": "text", "text": text} for text in texts]


def tool(name: str, about: str) -> Chat:
    schema = {"type": "object", "properties": {"where": {"type": "string"}}}
    return {"name": name, "description": about, "input_schema": schema}


WEATHER, STOCKS = (tool(n, text_of(f"what {n} is for", 40)) for n in ("weather", "stocks"))


def agent(query: str, result: str, *more: str) -> Chat:
    """An agent that has called a tool and got its result."""
    use = {"type": "tool_use", "id": "t1", "name": "weather", "input": {"where": query}}
    got = {"type": "tool_result", "tool_use_id": "t1", "content": result}
    return messages(GUIDE, "Will it rain?", [use], [got], *more, tools=[WEATHER, STOCKS])


def called(arguments: str) -> Chat:
    """A chat in which the assistant has called a function."""
    body = chat(GUIDE, "Look it up.", TURNS[0], TURNS[1])
    call = {"id": "c1", "type": "function", "function": {"name": "find", "arguments": arguments}}
    made = copy.deepcopy(body["messages"])
    made[2] = {"role": "assistant", "content": "", "tool_calls": [call]}
    made[3] = {"role": "tool", "tool_call_id": "c1", "content": TURNS[1]}
    made += [{"role": "assistant", "content": TURNS[2]}, {"role": "user", "content": "And then?"}]
    return {**body, "messages": made}


BROKEN: list[tuple[str, MissCause, str, Chat, Chat]] = [
    (
        "a date in Korean",
        MissCause.TIME,
        CHAT,
        chat(f"오늘은 2026년 3월 3일 화요일입니다. {KOREAN}", "안녕하세요"),
        chat(f"오늘은 2026년 3월 4일 수요일입니다. {KOREAN}", "안녕하세요"),
    ),
    (
        "a time of day in Korean",
        MissCause.TIME,
        MESSAGES,
        messages(f"현재 시각: 오후 3시 25분. {KOREAN}", "안녕하세요"),
        messages(f"현재 시각: 오후 3시 26분. {KOREAN}", "안녕하세요"),
    ),
    (
        "a customer's name in Korean",
        MissCause.USER_FIELD,
        CHAT,
        chat(f"고객 이름: 김민수. {KOREAN}", "안녕하세요"),
        chat(f"고객 이름: 이서연. {KOREAN}", "안녕하세요"),
    ),
    (
        "a time as web servers log it, in the first of two system blocks",
        MissCause.TIME,
        MESSAGES,
        messages(blocks("Built 10/Mar/2026:13:55:36 +0000", GUIDE), "hi"),
        messages(blocks("Built 10/Mar/2026:13:55:41 +0000", GUIDE), "hi"),
    ),
    (
        "the tools of Messages in another order",
        MissCause.TOOL_ORDER,
        MESSAGES,
        messages(GUIDE, "hi", tools=[WEATHER, STOCKS]),
        messages(GUIDE, "hi", tools=[STOCKS, WEATHER]),
    ),
    (
        "a tool's description with a version in it",
        MissCause.TOOLS_CHANGED,
        MESSAGES,
        messages(GUIDE, "hi", tools=[tool("weather", "v1.2 " + GUIDE), STOCKS]),
        messages(GUIDE, "hi", tools=[tool("weather", "v1.3 " + GUIDE), STOCKS]),
    ),
    (
        "an old tool result cleared",
        MissCause.HISTORY_EDITED,
        MESSAGES,
        agent("Seoul", text_of("a long result", 60), TURNS[0], TURNS[1], TURNS[2]),
        agent("Seoul", "[cleared]", TURNS[0], TURNS[1], TURNS[2], TURNS[3], TURNS[4]),
    ),
    (
        "the arguments of an old call written anew",
        MissCause.HISTORY_EDITED,
        CHAT,
        called('{"what": "opening hours", "where": "Seoul"}'),
        called('{"where": "Seoul", "what": "opening hours"}'),
    ),
    (
        "a sortable identifier",
        MissCause.IDENTIFIER,
        CHAT,
        chat(f"Ref 01HQZX3V7K9M2N4P6R8T0W1Y3Z. {GUIDE}", "hi"),
        chat(f"Ref 01HQZX9B2C4D6F8G0J1K3M5N7P. {GUIDE}", "hi"),
    ),
    (
        "the number of a case",
        MissCause.IDENTIFIER,
        RESPONSES,
        {"model": MODEL, "instructions": f"Support case #48213. {GUIDE}", "input": "hi"},
        {"model": MODEL, "instructions": f"Support case #51077. {GUIDE}", "input": "hi"},
    ),
    (
        "Korean in decomposed letters",
        MissCause.UNICODE_FORM,
        CHAT,
        chat(KOREAN, "안녕하세요"),
        chat(unicodedata.normalize("NFD", KOREAN), "안녕하세요"),
    ),
    (
        "a window that slides over the conversation",
        MissCause.HISTORY_DROPPED,
        MESSAGES,
        messages("", *TURNS[:7]),
        messages("", *TURNS[2:9]),
    ),
    (
        "a summary in Korean for the first turns",
        MissCause.HISTORY_SUMMARISED,
        MESSAGES,
        messages(GUIDE, *TURNS[:7]),
        messages(GUIDE, "지금까지의 요약: 인사를 나누었다.", *TURNS[5:8]),
    ),
    (
        "a counter of tries",
        MissCause.AGENT_NONCE,
        CHAT,
        chat(f"Retry 2/5. {GUIDE}", "hi"),
        chat(f"Retry 3/5. {GUIDE}", "hi"),
    ),
    (
        "what is left of the budget",
        MissCause.AGENT_NONCE,
        MESSAGES,
        messages(f"Tokens remaining: 187331. {GUIDE}", "hi"),
        messages(f"Tokens remaining: 184020. {GUIDE}", "hi"),
    ),
    (
        "the question before a Korean text",
        MissCause.PRIVATE_FIRST,
        MESSAGES,
        messages("", f"환불은 며칠 안에 되나요? {KOREAN}"),
        messages("", f"배송이 늦으면 어떻게 하나요? {KOREAN}"),
    ),
    (
        "the language a user prefers",
        MissCause.USER_FIELD,
        RESPONSES,
        {"model": MODEL, "instructions": f"Preferred language: Korean. {GUIDE}", "input": "hi"},
        {"model": MODEL, "instructions": f"Preferred language: French. {GUIDE}", "input": "hi"},
    ),
    (
        "tabs for blanks",
        MissCause.WHITE_SPACE,
        MESSAGES,
        messages(GUIDE, "hi"),
        messages(GUIDE.replace(" ", "\t", 5), "hi"),
    ),
    (
        "another instruction in Korean",
        MissCause.SYSTEM_CHANGED,
        CHAT,
        chat(f"반드시 존댓말로 답하세요. {KOREAN}", "안녕하세요"),
        chat(f"짧게 한 문장으로만 답하세요. {KOREAN}", "안녕하세요"),
    ),
    (
        "where the user is",
        MissCause.USER_FIELD,
        CHAT,
        chat(f"Coordinates 37.5665, 126.9780. {GUIDE}", "hi"),
        chat(f"Coordinates 35.1796, 129.0756. {GUIDE}", "hi"),
    ),
]
