"""How much each client of a model asks (ServeGen, Alibaba): a skew of demand, not requests."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scopekv.simulate.traces.lines import Lines

HEADER = (
    "model,client_id,est_requests,active_windows,total_windows,"
    "rate_weighted_cv,mean_input_tokens,mean_output_tokens"
)


@dataclass(frozen=True, slots=True)
class Client:
    """One API client of one model over the time that was recorded, in windows of 10 minutes.

    `burstiness`: coefficient of variation of the times between its requests, weighted by rate.
    Mean tokens are None where the source does not have them.
    """

    model: str
    client: int
    requests: int
    windows_active: int
    windows_total: int
    burstiness: float
    input_tokens_mean: float | None
    output_tokens_mean: float | None


def read_clients(path: Path) -> list[Client]:
    """All clients (some hundreds), in the file's order. Raises Misuse with the line."""
    lines = Lines(path)
    found: list[Client] = []
    for text in lines:
        if lines.number == 1:
            if text != HEADER:
                raise lines.wrong("is not the header of a summary of ServeGen's clients")
            continue
        try:
            model, client, requests, active, total, burst, size, output = text.split(",")
            found.append(
                Client(
                    model=model,
                    client=int(client),
                    requests=int(requests),
                    windows_active=int(active),
                    windows_total=int(total),
                    burstiness=float(burst),
                    input_tokens_mean=float(size) if size else None,
                    output_tokens_mean=float(output) if output else None,
                )
            )
        except ValueError as error:
            raise lines.wrong(f"is no client: {error}") from error
    return found
