"""Values that change from request to request, by what they look like or are called.

English and Korean words; dates also as Chinese and Japanese write them. A pattern covers its value
to the end, so that a change in the last digit of a time is still a change of that time.
"""

from __future__ import annotations

import re

from scopekv.core.explaining.causes import MissCause

_MONTHS = (
    "(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    "|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\\.?"
)
_YEAR = r"(?:[,/ -]+\d{4})?"
_TIMES = (
    r"\b\d{4}[-/.]\d{1,2}[-/.]\d{1,2}",
    r"\b\d{1,2}[-/.]\d{1,2}[-/.]\d{4}",
    r"\b\d{1,2}/\d{1,2}/\d{2}\b",
    r"\b\d{4}-?W\d{1,2}\b",
    r"(?<!\d)\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\s?(?:[ap]\.?m\b)?",
    r"\b\d{1,2}\s?[ap]\.?m\b",
    rf"\b{_MONTHS}[\s/-]+\d{{1,2}}(?:st|nd|rd|th)?\b{_YEAR}",
    rf"\b\d{{1,2}}(?:st|nd|rd|th)?\.?[\s/-]+(?:of\s+)?{_MONTHS}{_YEAR}",
    rf"\b{_MONTHS}\s+\d{{4}}\b",
    r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b",
    r"\b1[6-9]\d{8}(?:\d{3}){0,3}(?:\.\d+)?\b",
    r"\d{4}[년年]\s*\d{1,2}[월月](?:\s*\d{1,2}[일日])?",
    r"\d{1,2}[월月]\s*\d{1,2}[일日]",
    r"[월화수목금토일]요일|星期.|[月火水木金土日]曜日",
    (
        r"(?:(?:오전|오후|새벽|저녁|밤|上午|下午|午前|午後)\s*)?\d{1,2}[시时時]"
        r"(?:\s*\d{1,2}[분分])?(?:\s*\d{1,2}[초秒])?"
    ),
)
_THINGS = (
    "session|request|trace|conversation|thread|correlation|run|job|ticket|case|order|invoice|build"
    "|batch|task|reference|ref|device|message|chat|call|event|span|instance|worker|pod|host"
)
_THINGS_KOREAN = "세션|요청|대화|문의|주문|접수|티켓|작업|상담|예약|송장|거래"
_IDENTIFIERS = (
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    r"\b[0-9a-f]{16,}\b",
    rf"\b(?:{_THINGS})[ _-]?(?:id|no\.?|number|#)?\s*[:=#]\s*\S+",
    rf"\b(?:{_THINGS})[ _-]?(?:id|no\.?|number)?\s+(?=\S*\d)[\w-]{{4,}}",
    r"\b(?:sess|req|conv|thread|run|trace|msg)[_-][A-Za-z0-9]{4,}\b",
    rf"(?:{_THINGS_KOREAN})\s*(?:번호|아이디|ID)?\s*[:=#]?\s*(?=\S*\d)[\w-]+",
    r"#\s?\d{3,}\b|\b(?-i:[A-Z]{2,10}-\d{2,})\b",
    r"\b(?:\d{1,3}\.){3}\d{1,3}\b",
    r"\b(?=[\w-]*\d)(?=[\w-]*[A-Za-z])[A-Za-z0-9_-]{12,}\b",
)
_COUNTED = "tokens?|budget|context|requests?|credits?|calls?|messages?|quota|turns?|steps?"
_NONCES = (
    r"x-[a-z-]+-header\b[^\n]{0,80}",
    r"\b(?:nonce|cch|salt|(?:random[ _-]?)?seed|rand(?:om)?|cache[ _-]?bust\w*)\s*[:=]\s*\S+",
    (
        r"\b(?:attempt|turn|iteration|retry|round|cycle|tick|seq(?:uence)?)"
        r"\s*(?:no\.?|number)?\s*[:=#]?\s*\d+(?:\s*(?:/|of)\s*\d+)?"
    ),
    r"\bstep\s+\d+\s*(?:of|/)\s*\d+",
    rf"\b(?:{_COUNTED})[ _-]*(?:left|remaining|used|so far|count)\s*[:=]?\s*[\d,.]+%?",
    rf"\b(?:remaining|used)[ _-]*(?:{_COUNTED})\s*[:=]?\s*[\d,.]+%?",
    rf"[\d,.]+%?\s*(?:{_COUNTED})\s*(?:left|remaining|used|so far)\b",
    r"(?:시도|반복|회차|턴)\s*(?:횟수|번호)?\s*[:=#]?\s*\d+(?:\s*/\s*\d+)?|\d+\s*(?:번째|회차|회째)",
    r"(?:남은|사용한|잔여)\s*(?:토큰|예산|횟수|요청)\s*(?:수)?\s*[:=]?\s*[\d,.]+%?",
)
_PEOPLE = "user|customer|account|employee|member|client|patient|student|guest|caller|tenant"
_PERSONAL = (
    "name|e-?mail|plan|tier|locale|language|city|country|region|address|phone|age|time ?zone"
    "|department|currency|location|birthday|gender"
)
_ABOUT_KOREAN = (
    "이름|성함|아이디|이메일|언어|지역|주소|등급|직책|부서|나이|연락처|전화번호|국가|위치"
)
_NAME = r"(?-i:[A-Z]\S*)"
_VALUE = r"\s*[:=]\s*[^\n;|,.]{1,40}"
_USERS = (
    rf"\b(?:{_PEOPLE})(?:'s)?[ _-]?(?:{_PERSONAL}|id|mail|role)?{_VALUE}",
    rf"\b(?:{_PEOPLE})(?:'s)?[ _-](?:{_PERSONAL}|id|mail|role)\s+is\s+\S+",
    rf"\b(?:the|this|your|current) (?:{_PEOPLE}) is\s+{_NAME}(?: {_NAME})?",
    rf"\b(?:{_PERSONAL}){_VALUE}",
    r"[\w.+-]+@[\w-]+(?:\.\w+)+",
    (
        r"\b(?:you are|you're|now) (?:helping|talking to|assisting|serving|chatting with)"
        r"\s+\S+(?: \S+)?"
    ),
    r"-?\b\d{1,3}\.\d{3,}\s*,\s*-?\d{1,3}\.\d{3,}",
    r"\b(?:lat|lon|lng)(?:itude|gitude)?\s*[:=]?\s*-?\d+\.\d+",
    rf"(?:고객|사용자|회원|이용자|환자|학생|직원|손님)님?의?\s*(?:{_ABOUT_KOREAN})?{_VALUE}",
    rf"(?:{_ABOUT_KOREAN})(?:{_VALUE}|[은는]\s+\S+)",
    r"[가-힣]{2,4}\s?(?:고객님|회원님|선생님|씨)",
)

PATTERNS: tuple[tuple[MissCause, re.Pattern[str]], ...] = tuple(
    (code, re.compile("|".join(patterns), re.IGNORECASE))
    for code, patterns in (
        (MissCause.AGENT_NONCE, _NONCES),
        (MissCause.TIME, _TIMES),
        (MissCause.IDENTIFIER, _IDENTIFIERS),
        (MissCause.USER_FIELD, _USERS),
    )
)
