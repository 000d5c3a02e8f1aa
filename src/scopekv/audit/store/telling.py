"""What logs, metrics and events tell: read after the canaries went through, as an outsider would.

Case I10. vLLM's own events hold token ids; that is told as learned, and the bus must be closed.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from scopekv.audit.results import Check, Severity
from scopekv.audit.store.judging import judged, not_tested, plural
from scopekv.audit.store.needles import NAME_OF_OURS, Needle, Words, search
from scopekv.audit.store.patterns import EXAMPLES, shown_in
from scopekv.audit.store.target import MetricsPage
from scopekv.errors import ConfigError, Unavailable
from scopekv.gateway.http import ClientPool, Headers

LOG_BYTES_MAX = 256 << 20
_CHUNK_BYTES = 1 << 20
_OVERLAP_BYTES = 4096  # what stands across two chunks is still seen
PAGE_BYTES_MAX = 16 << 20
_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*)="((?:[^"\\]|\\.)*)"')
_SAMPLE = re.compile(r"^[a-zA-Z_:][a-zA-Z0-9_:]*(?:\{[^\n]*\})? [0-9.eE+naiNI-]+", re.MULTILINE)
_WHOSE = frozenset({
    "account", "api_key", "cache_salt", "customer", "customer_id", "document", "document_id",
    "end_user", "key_id", "org", "org_id", "organisation", "organization", "principal", "salt",
    "scope_id", "session", "session_id", "tenant", "tenant_id", "ticket", "user", "user_id",
    "user_name", "username"
})  # fmt: skip
_OPAQUE = re.compile(r"[0-9a-f]{24,64}")
PROBE = "probe-7d1f0c"


@dataclass(frozen=True, slots=True, repr=False)
class Hidden:
    """What must be in none of them."""

    needles: Sequence[Needle]
    words: Words

    def within(self, text: bytes) -> dict[str, int]:
        """What of it stands in `text`, and how often kinds of our own formats do.

        Names count as words of their own only: a short one stands in longer words by chance.
        """
        found = Counter(shown_in(text))
        for needle in search(text, self.needles):
            if needle.what != NAME_OF_OURS:
                found[f"{needle.what} ({needle.spelling})"] += 1
        return dict(found)


def planted_log(hidden: Hidden) -> bytes:
    """A log that says everything that it must not."""
    lines = [b"INFO " + needle.content for needle in hidden.needles]
    return b"\n".join([*lines, *EXAMPLES])


async def logs(paths: Sequence[Path], hidden: Hidden) -> Check:
    """Read each log whole. Raises `ConfigError` for a path that cannot be read.

    A name that may be a word of the language is counted, and proves nothing: the audit's own
    organisations have names that no program writes by chance.
    """
    name, title = "store.logs", "Logs hold no prompt, token id, key, ticket or salt"
    if not paths:
        return not_tested(name, title, "no log file was named")
    found: Counter[str] = Counter()
    telling, size_bytes, like_words = hidden.words.telling, 0, 0
    for path in paths:
        for chunk in _chunks(path):
            size_bytes += len(chunk)
            found.update((await asyncio.to_thread(hidden.within, chunk)).keys())
            text = chunk.decode("utf-8", "replace")
            if telling.within(text):
                found[NAME_OF_OURS] += 1
            elif hidden.words.within(text):
                like_words += 1
    planted = hidden.within(planted_log(hidden))
    return judged(
        name,
        title,
        broken=[f"{what} stood in {plural(count, 'place')}" for what, count in found.items()],
        held=f"nothing of it in {plural(size_bytes, 'byte')} of {plural(len(paths), 'log')}"
        + (", but words that are names here as well" if like_words else ""),
        control="a log with all of it planted was found out, and the logs were not empty",
        control_ok=size_bytes > 0 and len(planted) > 2,
        tried=len(paths),
        evidence={"bytes": size_bytes, "hits": dict(found), "words_like_names": like_words},
    )


def _chunks(path: Path) -> Iterator[bytes]:
    """The end of a log that is too long, in pieces that overlap."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - LOG_BYTES_MAX))
            rest = b""
            while chunk := file.read(_CHUNK_BYTES):
                yield rest + chunk
                rest = chunk[-_OVERLAP_BYTES:]
    except OSError as error:
        raise ConfigError(f"the log {path} cannot be read: {error.strerror}") from error


async def metrics(pages: Sequence[MetricsPage], hidden: Hidden) -> Check:
    """No page names anybody, in a label or anywhere."""
    name, title = "store.metrics", "Metrics name no tenant, and hold nothing of a prompt"
    if not pages:
        return not_tested(name, title, "no page of metrics was named", Severity.MEDIUM)
    broken: list[str] = []
    samples, unread = 0, 0
    for page in pages:
        try:
            text = await page_text(page)
        except Unavailable:
            unread += 1
            continue
        count = len(_SAMPLE.findall(text))
        samples += count
        broken += told_by(text, hidden)
        unread += not count
    example = f'scopekv_requests_total{{org="{PROBE}",salt="{"0f" * 32}"}} 1\n'
    control = told_by(example, Hidden(hidden.needles, Words((PROBE,))))
    return judged(
        name,
        title,
        broken=list(dict.fromkeys(broken)),
        held=f"{plural(samples, 'sample')} without a label that says whose",
        control="a planted label with a tenant's name was found out, and every page had samples"
        + (f" ({unread} had none or could not be read)" if unread else ""),
        control_ok=len(control) >= 3 and not unread,
        tried=samples,
        severity=Severity.MEDIUM,
        evidence={"pages": len(pages), "samples": samples},
    )


def told_by(text: str, hidden: Hidden) -> list[str]:
    """What a page of metrics says that it must not, in words that do not repeat it."""
    broken = []
    labels: dict[str, set[str]] = {}
    for label, value in _LABEL.findall(text):
        labels.setdefault(label, set()).add(value)
    for label, values in labels.items():
        if label in _WHOSE:
            broken.append(f"the label {label} says whose ({plural(len(values), 'value')})")
        if any(hidden.words.within(value) for value in values):
            broken.append(f"the label {label} holds a name of the deployment")
        if any(_OPAQUE.fullmatch(value) for value in values):
            broken.append(f"the label {label} holds an opaque id, as salts and scopes have")
    broken += [f"{what} stands in it" for what in hidden.within(text.encode())]
    return broken


async def page_text(page: MetricsPage) -> str:
    """Fetch one page. Raises `Unavailable`."""
    parts = urlsplit(page.url)
    headers: Headers = []
    if page.key:
        headers.append((b"authorization", b"Bearer " + page.key.encode()))
    pool = ClientPool(f"{parts.scheme}://{parts.netloc}")
    try:
        reply = await pool.request(
            "GET", parts.path or "/metrics", headers, b"", timeout_seconds=30
        )
        async with reply:
            if reply.status != 200:
                raise Unavailable(f"{parts.netloc}{parts.path} answered {reply.status}")
            return (await reply.read(PAGE_BYTES_MAX)).decode("utf-8", "replace")
    finally:
        await pool.close()
