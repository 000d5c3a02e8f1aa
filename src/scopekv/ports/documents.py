"""The port of published documents, and of those that end by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from scopekv.core.policy import Document
from scopekv.core.scopes import Audience


@dataclass(frozen=True, slots=True)
class PublishedDocument:
    """A document with its text, as the gateway recognises it in prompts.

    `expires_at`: Unix seconds from which on it is nobody's to read; None: until it is withdrawn.
    """

    document: Document
    name: str
    text: str
    revision: int
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """A document without its text. `org` is the owner; "" for the deployment's own."""

    document: Document
    org_uid: str
    org: str
    name: str
    revision: int
    digest: bytes
    size_bytes: int
    created_at: float
    changed_at: float


@dataclass(frozen=True, slots=True)
class Revision:
    """One past or current revision: the SHA-256 of its text, and its size in UTF-8."""

    revision: int
    digest: bytes
    size_bytes: int
    created_at: float


class Documents(Protocol):
    """Published documents. Revise, set_audience and withdraw raise the document's epoch.

    The same text or audience again changes nothing. `withdraw` is for good: the text is dropped,
    the name is free, the uid is not. `list` is all, withdrawn ones too, by owner and name.
    `publish`: `Conflict` if its owner has a live one of that name, `NotFound` for an audience that
    does not exist, `TooLarge` or `Misuse` for a text out of bounds.
    """

    def get(self, uid: str) -> DocumentRecord | None: ...
    def list(self) -> Sequence[DocumentRecord]: ...
    def text(self, uid: str) -> str: ...
    def revisions(self, uid: str) -> Sequence[Revision]: ...
    def publish(self, org_uid: str, name: str, audience: Audience, text: str) -> DocumentRecord: ...
    def revise(self, uid: str, text: str) -> DocumentRecord: ...
    def set_audience(self, uid: str, audience: Audience) -> DocumentRecord: ...
    def withdraw(self, uid: str) -> DocumentRecord: ...


@dataclass(frozen=True, slots=True)
class CachedContent:
    """A document that an account made for itself or its organisation, until `expires_at`.

    `tokens`: of its text for `model`; None where nobody could count them.
    """

    record: DocumentRecord
    account_uid: str
    model: str
    display_name: str
    tokens: int | None
    expires_at: float


class CachedContents(Protocol):
    """What is known of cached contents, whose texts are documents. Withdrawn ones show nowhere.

    `of_account`, `of_org` and `due` (those whose end is at `at` or before) are by age.
    `drop` forgets a withdrawn document's row: its uid is never used again.
    """

    def get(self, uid: str) -> CachedContent | None: ...
    def of_account(self, account_uid: str) -> Sequence[CachedContent]: ...
    def of_org(self, org_uid: str) -> Sequence[CachedContent]: ...
    def due(self, at: float) -> Sequence[CachedContent]: ...
    def add(
        self,
        uid: str,
        account_uid: str,
        *,
        model: str,
        display_name: str,
        tokens: int | None,
        expires_at: float,
    ) -> CachedContent: ...
    def extend(self, uid: str, expires_at: float) -> CachedContent: ...
    def drop(self, uid: str) -> None: ...
