"""The section `[oidc]` of `scopekv.toml`: the identity provider whose tokens count."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

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

    issuer: Annotated[str, Meta(description="Exactly the `iss` of tokens; https.")]
    audience: Annotated[str, Meta(description="Must be in the `aud` of tokens.")]
    jwks_url: Annotated[
        str, Meta(description="Where the provider's keys are; empty: from its discovery document.")
    ] = ""
    algorithms: Annotated[tuple[str, ...], Meta(description="Asymmetric ones only.")] = (
        _DEFAULT.algorithms
    )
    ca_file: Annotated[str, Meta(description="Certificates to trust; empty: the system's.")] = ""
    timeout_seconds: Annotated[float, Meta(description="Of calls to the provider.")] = (
        _DEFAULT.timeout_seconds
    )
    refresh_seconds: Annotated[
        float, Meta(description="How often the provider's keys are fetched anew.")
    ] = _AGES.refresh_seconds
    keys_seconds_max: Annotated[float, Meta(description="Older keys verify nothing.")] = (
        _AGES.keys_seconds_max
    )
    provision: Annotated[
        Provision, Meta(description="What a good token of somebody new makes.")
    ] = Provision.NONE
    organisation: Annotated[str, Meta(description="Of all tokens; or name a claim.")] = ""
    organisation_claim: Annotated[
        str, Meta(description="The claim that names the organisation.")
    ] = ""
    user_claim: Annotated[str, Meta(description="What a new account is called.")] = (
        _RULES.user_claim
    )
    groups_claim: Annotated[
        str, Meta(description="The caller's groups; empty: the registry's.")
    ] = _RULES.groups_claim
    roles_claim: Annotated[str, Meta(description="What the provider calls roles.")] = (
        _RULES.roles_claim
    )
    roles: Annotated[
        dict[str, Role], Meta(description="From a role of the provider to one here.")
    ] = {}
    leeway_seconds: Annotated[float, Meta(description="How far clocks may differ.")] = (
        _RULES.leeway_seconds
    )
    key_seconds: Annotated[
        int, Meta(description="How long after a token's end keys made with it may last.")
    ] = _RULES.key_seconds


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
