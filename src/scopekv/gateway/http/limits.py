"""Every bound of the data plane, with its default. A limit on everything."""

import enum
from dataclasses import dataclass, field

from scopekv.errors import ConfigError


class Phase(enum.Enum):
    """Where a connection stands between two bytes of requests."""

    IDLE = "idle"
    HEAD = "head"
    BODY = "body"


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Bounds on one request, in bytes and counts; going over refuses it and ends the connection."""

    head_bytes_max: int = 32 * 1024
    headers_max: int = 128
    body_bytes_max: int = 16 * 1024 * 1024
    pipelined_max: int = 16

    def __post_init__(self) -> None:
        for name in ("head_bytes_max", "headers_max", "pipelined_max"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.body_bytes_max < 0:
            raise ConfigError(f"body_bytes_max is {self.body_bytes_max}; it must not be negative")


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """Bounds on time and number. A client over one is answered where HTTP allows, then cut."""

    request: RequestLimits = field(default_factory=RequestLimits)
    connections_max: int = 1024
    idle_seconds: float = 75.0
    head_seconds: float = 10.0
    body_seconds: float = 60.0
    write_seconds: float = 60.0
    pipelined_bytes_max: int = 64 * 1024
    write_bytes_high: int = 256 * 1024

    def __post_init__(self) -> None:
        names = ("connections_max", "idle_seconds", "head_seconds", "body_seconds")
        for name in (*names, "write_seconds", "pipelined_bytes_max", "write_bytes_high"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")

    def seconds(self, phase: Phase) -> float:
        """How long a phase may last."""
        if phase is Phase.IDLE:
            return self.idle_seconds
        return self.head_seconds if phase is Phase.HEAD else self.body_seconds


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of one pool. `idle_seconds` stays below uvicorn's 5 s (vLLM's default), so that it is
    we who drop an idle connection and not the engine while we write to it.
    """

    connections_max: int = 1024
    idle_max: int = 64
    idle_seconds: float = 4.0
    connect_seconds: float = 5.0
    stall_seconds: float = 600.0

    def __post_init__(self) -> None:
        for name in ("connections_max", "idle_seconds", "connect_seconds", "stall_seconds"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be above 0")
        if self.idle_max < 0:
            raise ConfigError(f"idle_max is {self.idle_max}; it must not be negative")
