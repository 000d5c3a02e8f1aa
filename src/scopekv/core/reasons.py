"""Closed reason codes. Explain, audit, console and metrics render these and invent none."""

from enum import StrEnum


class ScopeReason(StrEnum):
    """Why a part of a prompt got its scope. Visible to the operator, never to a client (L10)."""

    DOCUMENT_PUBLIC = "document_public"  # a published document for everybody
    DOCUMENT_ORG = "document_org"  # one for an organisation
    DOCUMENT_GROUP = "document_group"  # one for groups
    DOCUMENT_USER = "document_user"  # one for single users
    ROLE_RULE = "role_rule"  # the organisation's rule for this role
    AFTER_PRIVATE = "after_private"  # wider by itself, but private text stands before it
    PRIVATE_DEFAULT = "private_default"  # nothing says that it may be shared
    DENIED_NOT_MEMBER = "denied_not_member"  # the caller is not in its audience
    DENIED_WITHDRAWN = "denied_withdrawn"  # the document is withdrawn


class TicketReason(StrEnum):
    """What the engine made of a request's ticket."""

    OK = "ok"  # verified; sharing as granted
    ABSENT = "absent"  # the request carries none
    MALFORMED = "malformed"  # its bytes are no ticket
    UNKNOWN_KEY = "unknown_key"  # signed by a key that is not in the key list
    BAD_SIGNATURE = "bad_signature"  # forged or damaged
    EXPIRED = "expired"  # came too late, or clocks differ
    NOT_YET = "not_yet"  # issued in the future: clocks differ
    OTHER_AUDIENCE = "other_audience"  # for another instance group
    OTHER_NAMESPACE = "other_namespace"  # for another model, revision, precision or layout
    USED_UP = "used_up"  # its requests were all made
    REVOKED = "revoked"  # what it grants was revoked meanwhile
    DIGEST_MISMATCH = "digest_mismatch"  # the prompt is not the one it was made for
    WITHOUT_IDS = "without_ids"  # a request whose token ids are not known


class FetchReason(StrEnum):
    """Why blocks of a request are fetched from an outer tier, or made again (L9)."""

    FETCH_PAYS = "fetch_pays"  # fetching is expected to be faster
    EXPLORES = "explores"  # speed unknown: tried, within what a hang may cost
    RECOMPUTE_FASTER = "recompute_faster"  # computing is expected to be faster
    TOO_LITTLE = "too_little"  # the gain is below the margin
    TOO_FAR = "too_far"  # its first block comes later than a hang may cost
    TIER_SUSPENDED = "tier_suspended"  # the tier failed of late and is left alone
    NOTHING_THERE = "nothing_there"  # no tier has more than the engine
    UNKNOWN_SPEED = "unknown_speed"  # and the request is too short to try


class RouteReason(StrEnum):
    """Why a request went to an instance. For the operator; a client learns nothing of it (L10)."""

    ONLY_CANDIDATE = "only_candidate"  # no other instance can take it
    PREFIX_HERE = "prefix_here"  # more of the prompt is cached there than elsewhere
    PREFIX_IN_TIER = "prefix_in_tier"  # the same, counting what is fetched from a tier there
    SHORTER_QUEUE = "shorter_queue"  # outweighs what others have cached, or they have no more
    FASTER_PREFILL = "faster_prefill"  # computes it sooner, with no more of it cached
    HOT_PREFIX = "hot_prefix"  # the soonest holds its share of those in flight on this prefix
    LOAD_ONLY_UNSURE = "load_only_unsure"  # what is cached there is not known now
    TIE = "tie"  # none was clearly better; dice chose
    RETRY = "retry"  # another instance got nothing of it, or died with it
