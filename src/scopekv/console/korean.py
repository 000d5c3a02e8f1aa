"""The console in Korean, by the English text of its pages (test: complete, and nothing unused)."""

from __future__ import annotations

KOREAN: dict[str, str] = {
    # Frame
    "Skip to the content": "본문으로 건너뛰기",
    "Pages": "페이지",
    "Overview": "개요",
    "Documents": "문서",
    "Requests": "요청",
    "Instances": "인스턴스",
    "Revoke": "회수",
    "Receipts": "영수증",
    "Audit log": "감사 로그",
    "Security audits": "보안 감사",
    "Log in": "로그인",
    "Log out": "로그아웃",
    "Next page": "다음 페이지",
    "None yet.": "아직 없습니다.",
    "h": "시간",
    "min": "분",
    "s": "초",
    "ms": "밀리초",
    # Log-in and errors
    "API key": "API 키",
    "The key that your programs use. It is sent once and not kept in the browser.": "프로그램에서 "
    "쓰는 키입니다. 한 번만 전송되며 브라우저에 저장되지 않습니다.",
    "No key yet? An administrator of your organisation makes one.": "키가 없으면 조직 관리자에게 "
    "요청하세요.",
    "This API key is not valid: unknown, expired or blocked.": "이 API 키는 유효하지 않습니다. "
    "없거나, 만료되었거나, 차단된 키입니다.",
    "This form is old. Send it again.": "오래된 양식입니다. 다시 보내 주세요.",
    "This did not work": "처리하지 못했습니다",
    "Your browser's Back leads to what you wrote.": "브라우저의 뒤로 가기로 입력한 내용으로 돌아갈 "
    "수 있습니다.",
    # Overview
    "Last hour": "최근 1시간",
    "Last 24 hours": "최근 24시간",
    "Last 30 days": "최근 30일",
    "Organisation": "조직",
    "all": "전체",
    "Time": "기간",
    "Show": "보기",
    "Token hit rate": "토큰 적중률",
    "input tokens read from the cache": "캐시에서 읽은 입력 토큰의 비율",
    "Request hit rate": "요청 적중률",
    "requests with a cached token": "캐시된 토큰이 있는 요청의 비율",
    "Input tokens": "입력 토큰",
    "Time to first token": "첫 토큰까지의 시간",
    "mean of streamed answers": "스트리밍 응답의 평균",
    "What sharing saved, what isolation costs": "공유로 아낀 것과 격리의 비용",
    "What sharing saved": "공유로 아낀 것",
    "Times are estimates: tokens at the prefill speed that was measured": "시간은 측정된 프리필 "
    "속도로 환산한 추정치입니다",
    "What": "항목",
    "Tokens": "토큰",
    "Share of input": "입력 중 비율",
    "Prefill time": "프리필 시간",
    "Saved by documents and organisation scopes, which several callers share": "여러 호출자가 "
    "공유하는 문서 및 조직 범위로 절약",
    "Saved by each caller's own scopes": "호출자 자신의 범위로 절약",
    "Cost of isolation: computed, though others had sent the same text (at most)": "격리의 비용: "
    "다른 호출자가 같은 텍스트를 보냈지만 다시 계산함(최대치)",
    "Over time": "시간별 추이",
    "% of input tokens": "입력 토큰 중 %",
    "tokens a step": "구간별 토큰",
    "No requests in this time": "이 기간에는 요청이 없습니다",
    "Token hit rate over time: {rate} over the whole window. The table below has every value.": "시"
    "간별 토큰 적중률: 전체 기간 {rate}. 모든 값은 아래 표에 있습니다.",
    "Input tokens over time: {cached} read and {computed} computed. The table below has every "
    "value.": "시간별 입력 토큰: 읽음 {cached}, 계산 {computed}. 모든 값은 아래 표에 있습니다.",
    "read, shared scopes": "읽음, 공유 범위",
    "read, own scopes": "읽음, 자신의 범위",
    "computed": "계산",
    "The values of both charts": "두 차트의 값",
    "By step, in UTC; steps without requests are left out": "구간별(UTC), 요청이 없는 구간은 생략",
    "From": "시작",
    "By scope, tier and instance": "범위, 계층, 인스턴스별",
    "By kind of scope": "범위 종류별",
    "Scope": "범위",
    "Cached": "캐시됨",
    "By tier that cached tokens came from": "캐시된 토큰을 읽은 계층별",
    "Tier": "계층",
    "Share of cached": "캐시 중 비율",
    "Nothing was read from a cache in this time": "이 기간에는 캐시에서 읽은 것이 없습니다",
    "By instance": "인스턴스별",
    "Instance": "인스턴스",
    "By organisation": "조직별",
    "{shown} of {count} organisations, most input tokens first": "조직 {count}개 중 {shown}개, "
    "입력 토큰이 많은 순",
    "Saved by sharing": "공유로 절약",
    "Cost of isolation": "격리의 비용",
    # Documents
    "A published document is computed once and read by everyone in its audience, wherever it "
    "stands first in a message.": "게시된 문서는 한 번만 계산되며, 메시지의 맨 앞에 있으면 대상에 "
    "속한 모두가 그것을 읽습니다.",
    "Documents that you may know of": "볼 수 있는 문서",
    "Name": "이름",
    "Owner": "소유자",
    "Audience": "대상",
    "Revision": "개정",
    "Revisions": "개정",
    "Bytes": "바이트",
    "Changed": "변경",
    "Made": "생성",
    "Id": "ID",
    "Epoch": "에포크",
    "withdrawn": "철회됨",
    "the deployment": "배포 전체",
    "With the withdrawn": "철회된 문서 포함",
    "Without the withdrawn": "철회된 문서 제외",
    "Publish a document": "문서 게시",
    "Publish": "게시",
    "Letters, digits, dot, dash and underscore; up to 64.": "영문자, 숫자, 점, 하이픈, 밑줄로 "
    "최대 64자.",
    "public, org:ORG, group:ORG/GROUP or user:ORG/USER": "public, org:조직, group:조직/그룹 또는 "
    "user:조직/사용자",
    "An organisation; empty: the audience's own, or the deployment.": "조직 이름. 비워 두면 대상의 "
    "조직 또는 배포 전체.",
    "Text": "텍스트",
    "Exactly as prompts hold it: every blank and line end counts. Line ends are kept as LF.": "프"
    "롬프트에 들어가는 그대로 입력하세요. 공백과 줄바꿈도 모두 구분되며 줄바꿈은 LF로 저장됩니다.",
    "Each change below ends what is cached of the document as it is now, on every instance and "
    "tier, and leads to the receipt of that.": "아래에서 변경하면 현재 문서의 캐시가 모든 "
    "인스턴스와 "
    "계층에서 폐기되고, 그 영수증으로 이동합니다.",
    "Change the audience": "대상 변경",
    "Withdraw": "철회",
    "Take it out for good, with its text": "텍스트와 함께 영구히 철회합니다",
    "Replace the text": "텍스트 교체",
    "The document is published.": "문서를 게시했습니다.",
    "The document has its new text.": "문서의 텍스트를 교체했습니다.",
    "The document has its new audience.": "문서의 대상을 변경했습니다.",
    "The document is withdrawn.": "문서를 철회했습니다.",
    # Requests
    "What this gateway answered of late, in memory. A request is explained to its sender alone, "
    "since an explanation repeats the prompt's words.": "이 게이트웨이가 최근에 응답한 요청으로, "
    "메모리에만 있습니다. 설명에는 프롬프트의 내용이 나오므로 보낸 사람만 볼 수 있습니다.",
    "The last {count} requests, newest first": "최근 요청 {count}개, 최신순",
    "Request": "요청",
    "When": "시각",
    "Sender": "보낸 사람",
    "API": "API",
    "Own scope": "자신의 범위",
    "Why these tokens were computed": "이 토큰들이 다시 계산된 이유",
    "Compared with": "비교 대상",
    "no earlier request of yours": "이전 요청 없음",
    "Equal to the earlier request": "이전 요청과 같은 부분",
    "Could come from the cache": "캐시에서 읽을 수 있는 부분",
    "Causes, the likeliest first": "원인, 가능성이 높은 순",
    "None: what could come from the cache did.": "없음: 캐시에서 읽을 수 있는 것은 모두 "
    "읽었습니다.",
    "What to do": "조치",
    "Place in the request": "요청 안의 위치",
    "From token": "시작 토큰",
    "Tokens lost": "손실된 토큰",
    "Time lost": "손실된 시간",
    "Earlier": "이전",
    "This time": "이번",
    # Instances
    "Places taken": "사용 중인 자리",
    "of {places}": "전체 {places}",
    "Waiting for a place": "자리를 기다리는 요청",
    "Instances and their queues, as this gateway sees them": "이 게이트웨이에서 본 인스턴스와 "
    "대기열",
    "State": "상태",
    "Isolation": "격리",
    "Models": "모델",
    "In flight": "처리 중",
    "Waiting": "대기",
    "Decoding": "디코딩",
    "Of other gateways": "다른 게이트웨이",
    "Prefill, tokens/s": "프리필, 토큰/초",
    "Change": "변경",
    "Drain": "비우기",
    "Resume": "재개",
    "Drain {name}": "{name} 비우기",
    "Resume {name}": "{name} 재개",
    "Tiers": "계층",
    "Blocks and objects since each engine started": "엔진 시작 이후의 블록과 객체 수",
    "Blocks held": "보유 블록",
    "As of": "기준",
    "{age} ago": "{age} 전",
    "No engine has told of tiers.": "계층을 알려 준 엔진이 없습니다.",
    # Revocation
    "From the moment that a receipt is done, no request reads what was revoked, on any instance "
    "or tier. Keys that sealed it are destroyed at once. Nothing can be brought back; texts are "
    "computed anew where they are still allowed.": "영수증이 완료되면 어떤 인스턴스나 계층에서도 "
    "회수된 "
    "내용을 읽는 요청은 없습니다. 그것을 봉인한 키는 즉시 파기됩니다. 되돌릴 수 없으며, 여전히 "
    "허용된 "
    "텍스트는 다시 계산됩니다.",
    "A user or service account": "사용자 또는 서비스 계정",
    "Everything kept of the account, its end users and sessions.": "계정과 그 최종 사용자, 세션에 "
    "대해 저장된 모든 것.",
    "Account": "계정",
    "Also documents that only this account may read": "이 계정만 읽을 수 있는 문서도 포함",
    "A membership": "그룹 소속",
    "Take a member out of a group, and end what is kept of the group's documents.": "그룹에서 "
    "구성원을 빼고, 그룹 문서에 대해 저장된 것을 폐기합니다.",
    "Group": "그룹",
    "A document": "문서",
    "Document": "문서",
    "End what is kept of it. It stays published.": "문서에 대해 저장된 것을 폐기합니다. 게시는 "
    "유지됩니다.",
    "Its id, its name, or ORG/NAME": "ID, 이름 또는 조직/이름",
    "A session": "세션",
    "Session": "세션",
    "A session shares its account's epoch, so all of the account's scopes end.": "세션은 계정의 "
    "에포크를 함께 쓰므로 계정의 모든 범위가 폐기됩니다.",
    "As requests name it in X-ScopeKV-Session": "요청의 X-ScopeKV-Session에 쓰는 이름",
    "End user": "최종 사용자",
    "An organisation": "조직",
    "Its own scope, all its accounts and all its documents.": "조직의 범위, 모든 계정, 모든 문서.",
    "The same name again": "같은 이름을 다시 입력",
    "Revoked: {effect}. Keys destroyed: {keys}.": "회수됨: {effect}. 파기된 키: {keys}.",
    # Receipts
    "What was revoked or changed, and how far its purge has come; newest first": "회수되거나 "
    "변경된 "
    "것과 폐기 진행 상황, 최신순",
    "Receipt": "영수증",
    "Of what": "대상",
    "By": "행위자",
    "Done": "완료",
    "Every instance and tier has confirmed: nothing of this is read again.": "모든 인스턴스와 "
    "계층이 "
    "확인했습니다. 이 내용은 다시 읽히지 않습니다.",
    "Not every instance and tier has confirmed. Do not count this as done.": "아직 확인하지 않은 "
    "인스턴스나 계층이 있습니다. 완료로 보지 마세요.",
    "Look again": "다시 확인",
    "Scopes and epochs": "범위와 에포크",
    "Instances and tiers": "인스턴스와 계층",
    "Removed, at least": "삭제(최소)",
    "Reason": "이유",
    "Confirmed": "확인",
    "No instance has been asked yet.": "아직 요청받은 인스턴스가 없습니다.",
    # Audit log and audits
    "The log is intact.": "로그가 온전합니다.",
    "The log was changed.": "로그가 변경되었습니다.",
    "Head, to be noted elsewhere": "다른 곳에 기록해 둘 헤드",
    "Head noted earlier": "이전에 기록한 헤드",
    "Verify the whole log": "전체 로그 검증",
    "Entries, newest first; nobody can change or remove one unnoticed": "항목, 최신순. 누구도 흔적 "
    "없이 바꾸거나 지울 수 없습니다",
    "No.": "번호",
    "Actor": "행위자",
    "Action": "행위",
    "Resource": "대상",
    "Outcome": "결과",
    "Older entries": "이전 항목",
    "Reports that lie in the folder audits of the data directory. One is made by:": "데이터 "
    "디렉터리의 audits 폴더에 있는 보고서입니다. 만드는 명령:",
    "Reports, newest first": "보고서, 최신순",
    "Report": "보고서",
    "Whether a report was changed since it was signed is told by scopekv audit verify, not by "
    "this page.": "서명 후 보고서가 바뀌었는지는 이 페이지가 아니라 scopekv audit verify로 "
    "확인합니다.",
}
