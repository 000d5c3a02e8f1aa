"""A third set of broken prompts: written after the second had mended `explain`, tried once."""

from __future__ import annotations

from scopekv.core.explaining import MissCause
from scopekv.simulate.stage import text_of
from tests.unit.gateway.broken_prompts import MODEL, Chat, chat
from tests.unit.gateway.more_broken_prompts import (
    CHAT,
    GUIDE,
    KOREAN,
    MESSAGES,
    REPORT,
    RESPONSES,
    STOCKS,
    TURNS,
    WEATHER,
    blocks,
    messages,
)


def responses(instructions: str, said: object = "hi") -> Chat:
    return {"model": MODEL, "instructions": instructions, "input": said}


UNSEEN: list[tuple[str, MissCause, str, Chat, Chat]] = [
    (
        "a time with milliseconds and zone",
        MissCause.TIME,
        RESPONSES,
        responses(f"<now>2026-11-30T08:01:22.417+09:00</now> {GUIDE}"),
        responses(f"<now>2026-11-30T08:01:22.982+09:00</now> {GUIDE}"),
    ),
    (
        "a date in British order and a later question",
        MissCause.TIME,
        MESSAGES,
        messages(blocks(f"Today's date is the 1st of June, 2026. {GUIDE}"), "What is new?"),
        messages(blocks(f"Today's date is the 2nd of June, 2026. {GUIDE}"), "Anything else?"),
    ),
    (
        "the clock at the head of the user's own message",
        MissCause.TIME,
        CHAT,
        chat("", f"[09:12:44] Read this and summarise it: {REPORT}"),
        chat("", f"[09:12:59] Read this and summarise it: {REPORT}"),
    ),
    (
        "two words of a name",
        MissCause.USER_FIELD,
        MESSAGES,
        messages(f"Customer: Maria Lopez\n\n{GUIDE}", "hi"),
        messages(f"Customer: Maria Jansen\n\n{GUIDE}", "hi"),
    ),
    (
        "a customer who is addressed in Korean",
        MissCause.USER_FIELD,
        CHAT,
        chat(f"지금 박지훈 고객님과 이야기하고 있습니다. {KOREAN}", "안녕하세요"),
        chat(f"지금 최유나 고객님과 이야기하고 있습니다. {KOREAN}", "안녕하세요"),
    ),
    (
        "a department in a profile of several lines",
        MissCause.USER_FIELD,
        RESPONSES,
        responses(f"Profile\n- Department: Sales EMEA\n- Seniority: 4 years\n\n{GUIDE}"),
        responses(f"Profile\n- Department: Legal\n- Seniority: 9 years\n\n{GUIDE}"),
    ),
    (
        "a ticket's key as trackers write it",
        MissCause.IDENTIFIER,
        CHAT,
        chat(f"You work on OPS-4417. {GUIDE}", "hi"),
        chat(f"You work on OPS-4502. {GUIDE}", "hi"),
    ),
    (
        "an address in the network",
        MissCause.IDENTIFIER,
        MESSAGES,
        messages(f"Client at 10.2.33.7. {GUIDE}", "hi"),
        messages(f"Client at 10.2.40.9. {GUIDE}", "hi"),
    ),
    (
        "a Korean order number",
        MissCause.IDENTIFIER,
        MESSAGES,
        messages(f"주문번호 A20394-77 건에 대한 상담입니다. {KOREAN}", "안녕하세요"),
        messages(f"주문번호 B11820-03 건에 대한 상담입니다. {KOREAN}", "안녕하세요"),
    ),
    (
        "a working directory of its own for each run",
        MissCause.IDENTIFIER,
        CHAT,
        chat(f"Working directory: /tmp/agent-x7Kp2qLm/work. {GUIDE}", "hi"),
        chat(f"Working directory: /tmp/agent-Qz81rTfa/work. {GUIDE}", "hi"),
    ),
    (
        "how full the context is",
        MissCause.AGENT_NONCE,
        CHAT,
        chat(f"Context used: 41%. {GUIDE}", "hi"),
        chat(f"Context used: 43%. {GUIDE}", "hi"),
    ),
    (
        "which turn it is, in Korean",
        MissCause.AGENT_NONCE,
        MESSAGES,
        messages(f"지금은 7번째 시도입니다. {KOREAN}", "안녕하세요"),
        messages(f"지금은 8번째 시도입니다. {KOREAN}", "안녕하세요"),
    ),
    (
        "one more tool than before",
        MissCause.TOOLS_CHANGED,
        MESSAGES,
        messages(GUIDE, "hi", tools=[WEATHER]),
        messages(GUIDE, "hi", tools=[WEATHER, STOCKS]),
    ),
    (
        "a mark that does not show",
        MissCause.UNICODE_FORM,
        RESPONSES,
        responses(GUIDE),
        responses("\ufeff" + GUIDE),
    ),
    (
        "blanks at the ends of lines",
        MissCause.WHITE_SPACE,
        MESSAGES,
        messages(GUIDE.replace(" ", "\n", 3), "hi"),
        messages(GUIDE.replace(" ", " \n", 3), "hi"),
    ),
    (
        "a reminder written into an old question",
        MissCause.HISTORY_EDITED,
        RESPONSES,
        {
            "model": MODEL,
            "input": [
                {"role": role, "content": text}
                for role, text in zip(("user", "assistant", "user"), TURNS[:3], strict=True)
            ],
        },
        {
            "model": MODEL,
            "input": [
                {"role": "user", "content": "Remember to be kind. " + TURNS[0]},
                {"role": "assistant", "content": TURNS[1]},
                {"role": "user", "content": TURNS[2]},
                {"role": "assistant", "content": TURNS[3]},
                {"role": "user", "content": TURNS[4]},
            ],
        },
    ),
    (
        "passages found for the question, before the report",
        MissCause.PRIVATE_FIRST,
        MESSAGES,
        messages(GUIDE, f"Found: {text_of('hit a', 12)}\n\n{REPORT}\n\nSummarise it."),
        messages(GUIDE, f"Found: {text_of('hit b', 12)}\n\n{REPORT}\n\nSummarise it."),
    ),
    (
        "the rule of the week",
        MissCause.SYSTEM_CHANGED,
        CHAT,
        chat(f"Always mention our spring sale. {GUIDE}", "hi"),
        chat(f"Never mention prices. {GUIDE}", "hi"),
    ),
    (
        "a Korean rule about opening times, reworded",
        MissCause.SYSTEM_CHANGED,
        MESSAGES,
        messages(f"고객이 환불을 요구하면 바로 처리한다. {KOREAN}", "안녕하세요"),
        messages(f"고객이 교환을 요구하면 바로 처리한다. {KOREAN}", "안녕하세요"),
    ),
    (
        "another size of the model",
        MissCause.MODEL_CHANGED,
        MESSAGES,
        messages(GUIDE, "hi"),
        messages(GUIDE, "hi") | {"model": f"{MODEL}-large"},
    ),
]
