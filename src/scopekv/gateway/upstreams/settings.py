"""`[[upstreams]]`: providers, their models, and which credential is for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from scopekv.errors import ConfigError
from scopekv.gateway.addresses import server_root

MINUTES, HOUR = "5m", "1h"


class UpstreamKind(StrEnum):
    """Whose API it speaks."""

    OPENAI = "openai"  # chat completions, Responses
    ANTHROPIC = "anthropic"  # Messages


@dataclass(frozen=True, slots=True, repr=False)
class Credential:
    """An API key of the provider, and the organisations it is for; none: for all others."""

    api_key: str
    organisations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, repr=False)
class UpstreamSettings:
    """One provider. `share_public` False: not even public documents stand before a marker.

    `breakpoints`: None as the kind needs it, Anthropic's always and OpenAI's from GPT-5.6 on.
    `ttl`: of the breakpoints that the gateway sets (Anthropic).
    """

    name: str
    kind: UpstreamKind
    base_url: str
    models: tuple[str, ...]
    credentials: tuple[Credential, ...]
    share_public: bool = True
    breakpoints: bool | None = None
    ttl: str = MINUTES

    def __post_init__(self) -> None:
        object.__setattr__(self, "base_url", server_root(self.base_url))
        what = f"[[upstreams]] {self.name!r}"
        if not self.name or not self.models or not all(self.models):
            raise ConfigError(f"{what} needs a name and at least one model")
        url = urlsplit(self.base_url)
        if url.scheme != "https" and not (url.scheme == "http" and _is_loopback(url.hostname)):
            raise ConfigError(f"{what}: base_url must be https, for prompts and keys go there")
        if not self.credentials:
            raise ConfigError(f"{what} has no api_key: set one, or [[upstreams.credentials]]")
        for one in self.credentials:
            if not one.api_key or not one.api_key.isascii() or not one.api_key.isprintable():
                raise ConfigError(f"{what}: an api_key is empty or not printable ASCII")
        if sum(not one.organisations for one in self.credentials) > 1:
            raise ConfigError(f"{what}: two credentials are for all organisations")
        named = [org for one in self.credentials for org in one.organisations]
        if len(set(named)) != len(named):
            raise ConfigError(f"{what}: two credentials are for one organisation")

    @property
    def sets_breakpoints(self) -> bool:
        if self.breakpoints is None:
            return self.kind is UpstreamKind.ANTHROPIC
        return self.breakpoints

    def credential(self, org: str) -> Credential | None:
        """The organisation's own, else the one for all; None where there is neither."""
        general = None
        for one in self.credentials:
            if org in one.organisations:
                return one
            if not one.organisations:
                general = one
        return general


class CredentialSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    organisations: Annotated[
        list[str], Meta(description="For these, instead of the upstream's own key.")
    ]
    api_key: Annotated[str, Meta(description="The provider's key.")] = ""
    api_key_file: Annotated[str, Meta(description="Or a file that holds it, read at start.")] = ""


class UpstreamSection(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    name: Annotated[str, Meta(description="A name of your choice, for logs and metrics.")]
    kind: Annotated[UpstreamKind, Meta(description="Whose API it speaks.")]
    base_url: Annotated[
        str, Meta(description="With or without `/v1`: `https://api.openai.com`, say. https only.")
    ]
    models: Annotated[
        list[str], Meta(description="Requests for these go there, even if an engine has them.")
    ]
    api_key: Annotated[
        str, Meta(description="The key for organisations that have none of their own.")
    ] = ""
    api_key_file: Annotated[str, Meta(description="Or a file that holds it, read at start.")] = ""
    credentials: Annotated[
        list[CredentialSection], Meta(description="Keys of other workspaces, by organisation.")
    ] = []
    share_public: Annotated[
        bool, Meta(description="Public documents are sent without a marker, so that all share.")
    ] = True
    breakpoints: Annotated[
        bool | None,
        Meta(
            description="Set breakpoints where another scope begins. Unset: for Anthropic; set it "
            "for OpenAI's models from GPT-5.6 on."
        ),
    ] = None
    ttl: Annotated[
        Literal["5m", "1h"], Meta(description="Anthropic: of the breakpoints set here.")
    ] = "5m"


def upstream_settings(
    sections: Sequence[UpstreamSection], folder: Path
) -> tuple[UpstreamSettings, ...]:
    """Read them; paths count from `folder`. Raises `ConfigError`, which never holds a key."""
    made = []
    for one in sections:
        given = [Credential(_key(c, folder), tuple(c.organisations)) for c in one.credentials]
        if any(not credential.organisations for credential in given):
            raise ConfigError(f"[[upstreams]] {one.name!r}: a credential names no organisation")
        if one.api_key or one.api_key_file:
            given.append(Credential(_key(one, folder)))
        made.append(
            UpstreamSettings(
                *(one.name, one.kind, one.base_url, tuple(one.models), tuple(given)),
                share_public=one.share_public,
                breakpoints=one.breakpoints,
                ttl=one.ttl,
            )
        )
    return tuple(made)


def _key(section: CredentialSection | UpstreamSection, folder: Path) -> str:
    if section.api_key and section.api_key_file:
        raise ConfigError("[[upstreams]]: give api_key or api_key_file, not both")
    if not section.api_key_file:
        return section.api_key
    path = folder / section.api_key_file
    try:
        return path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read api_key_file {path}: {type(error).__name__}") from None


def _is_loopback(host: str | None) -> bool:
    try:
        return host == "localhost" or ip_address(host or "").is_loopback
    except ValueError:
        return False
