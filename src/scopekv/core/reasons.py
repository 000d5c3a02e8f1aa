"""Closed reason codes. Explain, audit, console and metrics render these and invent none."""

from enum import StrEnum


class ScopeReason(StrEnum):
    """Why a part of a prompt got its scope. Visible to the operator, never to a client (L10)."""

    DOCUMENT_PUBLIC = "document_public"
    DOCUMENT_ORG = "document_org"
    DOCUMENT_GROUP = "document_group"
    DOCUMENT_USER = "document_user"
    ROLE_RULE = "role_rule"
    AFTER_PRIVATE = "after_private"
    PRIVATE_DEFAULT = "private_default"
    DENIED_NOT_MEMBER = "denied_not_member"
    DENIED_WITHDRAWN = "denied_withdrawn"


class TicketReason(StrEnum):
    """What the engine made of a request's ticket."""

    OK = "ok"
    ABSENT = "absent"
    MALFORMED = "malformed"
    UNKNOWN_KEY = "unknown_key"
    BAD_SIGNATURE = "bad_signature"
    EXPIRED = "expired"
    NOT_YET = "not_yet"
    OTHER_AUDIENCE = "other_audience"
    OTHER_NAMESPACE = "other_namespace"
    USED_UP = "used_up"
    REVOKED = "revoked"
    DIGEST_MISMATCH = "digest_mismatch"
    WITHOUT_IDS = "without_ids"


class FetchReason(StrEnum):
    """Why blocks of a request are fetched from an outer tier, or made again (L9)."""

    FETCH_PAYS = "fetch_pays"
    EXPLORES = "explores"  # speed unknown: tried, within what a hang may cost
    RECOMPUTE_FASTER = "recompute_faster"
    TOO_LITTLE = "too_little"  # the gain is below the margin
    TOO_FAR = "too_far"  # its first block comes later than a hang may cost
    TIER_SUSPENDED = "tier_suspended"
    NOTHING_THERE = "nothing_there"
    UNKNOWN_SPEED = "unknown_speed"  # and the request is too short to try


class AdmissionReason(StrEnum):
    """Why a block is written to an outer tier, or not (L11)."""

    ROOM = "room"
    GUARANTEED = "guaranteed"  # its account is below its share, which no pressure takes away
    SECOND_USE = "second_use"
    WORTH_MORE = "worth_more"
    FIRST_USE = "first_use"  # not written: nothing says that it will be read again


class RouteReason(StrEnum):
    """Why a request went to an instance. For the operator; a client learns nothing of it (L10)."""

    ONLY_CANDIDATE = "only_candidate"
    PREFIX_HERE = "prefix_here"  # more of the prompt is cached there than elsewhere
    PREFIX_IN_TIER = "prefix_in_tier"  # the same, counting what is fetched from a tier there
    SHORTER_QUEUE = "shorter_queue"  # outweighs what others have cached, or they have no more
    FASTER_PREFILL = "faster_prefill"
    HOT_PREFIX = "hot_prefix"  # the soonest holds its share of those in flight on this prefix
    LOAD_ONLY_UNSURE = "load_only_unsure"  # what is cached there is not known now
    TIE = "tie"
    RETRY = "retry"  # another instance got nothing of it, or died with it
