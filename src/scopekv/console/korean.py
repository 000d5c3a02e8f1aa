"""placeholder"""

KOREAN: dict[str, str] = {}
