"""The section `[oidc]` of `scopekv.toml`: the identity provider whose tokens count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from scopekv.compose import ProviderSettings
from scopekv.core.administration import Role
from scopekv.core.identity import ClaimRules, Provision
from scopekv.gateway.identity import IdentitySettings
from scopekv.gateway.signing_keys import KeyAges

# Only their defaults are read.
_DEFAULT, _AGES = ProviderSettings("https://provider"), KeyAges()
_RULES = ClaimRules("https://provider", "scopekv", organisation="acme")


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Where the provider is, and what counts of its tokens."""

    provider: ProviderSettings
    identity: IdentitySettings


class OidcSection(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """`[oidc]` as it is written; docs/identity.md says what each is for."""

    issuer: str
    audience: str
    jwks_url: str = ""
    algorithms: tuple[str, ...] = _DEFAULT.algorithms
    ca_file: str = ""
    timeout_seconds: float = _DEFAULT.timeout_seconds
    refresh_seconds: float = _AGES.refresh_seconds
    keys_seconds_max: float = _AGES.keys_seconds_max
    provision: Provision = Provision.NONE
    organisation: str = ""
    organisation_claim: str = ""
    user_claim: str = _RULES.user_claim
    groups_claim: str = _RULES.groups_claim
    roles_claim: str = _RULES.roles_claim
    roles: dict[str, Role] = {}
    leeway_seconds: float = _RULES.leeway_seconds
    key_seconds: int = _RULES.key_seconds


def oidc_settings(section: OidcSection | None, folder: Path) -> OidcSettings | None:
    """Raises `ConfigError`. Paths count from the file's own folder."""
    if section is None:
        return None
    provider = ProviderSettings(
        section.issuer,
        section.jwks_url,
        section.algorithms,
        folder / section.ca_file if section.ca_file else None,
        section.timeout_seconds,
    )
    rules = ClaimRules(
        **{name: getattr(section, name) for name in ClaimRules.__dataclass_fields__},
    )
    ages = KeyAges(section.refresh_seconds, section.keys_seconds_max)
    return OidcSettings(provider, IdentitySettings(rules, section.provision, ages))
