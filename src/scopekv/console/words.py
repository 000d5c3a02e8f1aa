"""Closed codes as people read them, in English and Korean (test: every code has its words)."""

from __future__ import annotations

Words = dict[str, tuple[str, str]]

WORDS: Words = {
    # Scopes
    "document": ("document", "문서"),
    "org": ("organisation", "조직"),
    "user": ("user", "사용자"),
    "end_user": ("end user", "최종 사용자"),
    "session": ("session", "세션"),
    # Tiers
    "memory": ("engine or host memory", "엔진 또는 호스트 메모리"),
    "untold": ("not told (streamed answers)", "알 수 없음(스트리밍 응답)"),
    "engine": ("engine memory", "엔진 메모리"),
    "host": ("host memory", "호스트 메모리"),
    "directory": ("directory", "디렉터리"),
    "valkey": ("Valkey", "Valkey"),
    "s3": ("S3", "S3"),
    "connector": ("connector", "커넥터"),
    "all": ("all", "전체"),
    # Instances
    "in_use": ("in use", "사용 중"),
    "down": ("down", "중단됨"),
    "draining": ("draining", "비우는 중"),
    "drained": ("drained", "비워짐"),
    "resting": ("resting", "쉬는 중"),
    "scoped": ("scoped", "범위별"),
    "whole_prompt": ("whole prompts", "프롬프트 전체"),
    "unreachable": ("unreachable", "연결할 수 없음"),
    # Counters of tiers
    "hits": ("hits", "적중"),
    "misses": ("misses", "실패"),
    "stored": ("stored", "저장"),
    "evicted": ("evicted", "축출"),
    "expired": ("expired", "만료"),
    "purged": ("purged", "폐기"),
    "corrupt": ("corrupt", "손상"),
    "errors": ("errors", "오류"),
    # Receipts and log
    "pending": ("pending", "대기 중"),
    "busy": ("busy", "진행 중"),
    "incomplete": ("incomplete", "미완료"),
    "done": ("done", "완료"),
    "closed": ("closed", "종결"),
    "allowed": ("allowed", "허용"),
    "denied": ("denied", "거부"),
    "failed": ("failed", "실패"),
    # Causes
    "confirmed": ("confirmed", "확인됨"),
    "suspected": ("suspected", "추정"),
    "time": ("A time or date changed", "시각 또는 날짜가 바뀜"),
    "identifier": ("An identifier changed", "식별자가 바뀜"),
    "user_field": ("What is said of the user changed", "사용자 정보가 바뀜"),
    "agent_nonce": ("A line of the agent changed", "에이전트가 넣은 줄이 바뀜"),
    "tool_order": ("The tools came in another order", "도구 순서가 다름"),
    "tool_schema_order": (
        "Keys of tool schemas came in another order",
        "도구 스키마의 키 순서가 다름",
    ),
    "tools_changed": ("The tools changed", "도구가 바뀜"),
    "white_space": ("White space changed", "공백이 바뀜"),
    "unicode_form": ("The Unicode form changed", "유니코드 형식이 다름"),
    "system_changed": ("The system text changed", "시스템 텍스트가 바뀜"),
    "history_edited": ("Earlier messages were edited", "이전 메시지가 수정됨"),
    "history_dropped": ("Earlier messages were dropped", "이전 메시지가 빠짐"),
    "history_summarised": ("Earlier messages were summarised", "이전 메시지가 요약됨"),
    "private_first": ("Private text came before a document", "문서 앞에 비공개 텍스트가 있음"),
    "template_changed": ("The chat template changed its text", "채팅 템플릿의 텍스트가 바뀜"),
    "model_changed": ("Another model or adapter", "다른 모델 또는 어댑터"),
    "block_rounding": ("Less than a block in common", "공통 부분이 한 블록보다 짧음"),
    "below_minimum": ("Shorter than a block", "한 블록보다 짧음"),
    "cold": ("The first of its kind", "처음 보는 프롬프트"),
    "routed_elsewhere": ("Sent to another instance", "다른 인스턴스로 보냄"),
    "tier_too_slow": ("The tier was too slow", "계층이 너무 느림"),
    "revoked": ("Revoked or changed", "회수되었거나 변경됨"),
    "engine_without_plugin": ("An engine without the plugin", "플러그인이 없는 엔진"),
}

FIXES_IN_KOREAN: dict[str, str] = {
    "time": "날짜나 시각을 변하지 않는 부분 뒤, 마지막 메시지로 옮기거나 가장 자주 바뀌는 값을 "
    "빼세요",
    "identifier": "식별자를 변하지 않는 부분 뒤로 옮기거나 프롬프트에서 빼세요",
    "user_field": "사용자에 관한 내용을 모든 사용자가 공유하는 텍스트 뒤로 옮기세요",
    "agent_nonce": "요청마다 바뀌는 줄을 에이전트가 빼거나 지시문 뒤로 옮기게 하세요",
    "tool_order": "도구를 항상 같은 순서로, 예를 들어 이름순으로 보내세요",
    "tool_schema_order": "도구 스키마의 키를 항상 같은 순서로 쓰세요",
    "tools_changed": "한 대화에서는 같은 도구를 보내고 tool_choice로 고르세요",
    "white_space": "매번 같은 공백과 줄바꿈으로 프롬프트를 만드세요",
    "unicode_form": "보내기 전에 텍스트를 하나의 유니코드 형식(NFC)으로 맞추세요",
    "system_changed": "대화 중에는 시스템 텍스트를 그대로 두고 새 내용은 뒤의 메시지에 넣으세요",
    "history_edited": "대화는 덧붙이기만 하고 이미 보낸 내용을 고치지 마세요",
    "history_dropped": "첫 메시지들을 유지하고, 문맥이 가득 차면 드물게 크게 줄이세요",
    "history_summarised": "드물게 요약하고, 그 뒤로는 요약을 그대로 유지하세요",
    "private_first": "문서처럼 변하지 않는 텍스트를 질문 앞에 두세요",
    "template_changed": "프롬프트에 날짜를 넣지 않는 채팅 템플릿을 운영자에게 요청하거나, 날짜를 "
    "마지막 "
    "메시지에 직접 넣으세요",
    "model_changed": "같은 모델과 어댑터에 요청하세요. 캐시는 모델 사이에 공유되지 않습니다",
    "block_rounding": "할 일 없음: 온전한 블록만 공유되는데 공통 부분이 그보다 짧습니다",
    "below_minimum": "할 일 없음: 프롬프트가 한 블록보다 짧습니다",
    "cold": "할 일 없음: 처음 보는 프롬프트이며 다음 요청부터 쓸 수 있습니다",
    "expired": "더 빨리 다시 요청하거나, 운영자에게 더 긴 보존 기간을 요청하세요",
    "evicted": "더 빨리 다시 요청하거나, 운영자에게 메모리나 계층을 늘려 달라고 하세요",
    "routed_elsewhere": "할 일 없음: 캐시가 있는 인스턴스를 기다리는 것이 더 오래 걸렸을 것입니다",
    "tier_too_slow": "할 일 없음: 가져오는 것보다 다시 계산하는 것이 빨랐습니다",
    "revoked": "할 일 없음: 권한이나 문서가 바뀌어 캐시가 새로 시작됩니다",
    "engine_without_plugin": "운영자에게 알리세요. 이 엔진에는 ScopeKV 플러그인이 없어 자신의 "
    "프롬프트 "
    "전체만 공유됩니다",
}
