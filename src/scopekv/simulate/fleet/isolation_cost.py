"""What isolation alone costs: the token hit rate each kind of it allows, with infinite memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from scopekv.simulate.fleet.identity import Identities, Isolation
from scopekv.simulate.fleet.tenants import Assignment, TenantSpec
from scopekv.simulate.fleet.unlimited import Unlimited
from scopekv.simulate.fleet.workloads import Workload

RANDOM_BOUND = "random bound"


def allowed_by_isolation(
    workload: Workload,
    spec: TenantSpec,
    seed: int,
    progress: Callable[[int], None] | None = None,
) -> dict[str, float]:
    """Token hit rate by isolation, in one pass, with `RANDOM_BOUND` where tenants are drawn.

    The random bound is a salt for each user where every request is a random user's.
    """
    tenancy = workload.tenancy(spec, seed)
    sizes = {"orgs": tenancy.orgs, "users": tenancy.users}
    names = {each: Identities(each, **sizes) for each in Isolation}
    found = {each.value: Unlimited() for each in Isolation}
    torn = None
    if not workload.known_tenants:
        torn = workload.tenancy(replace(spec, assign=Assignment.RANDOM), seed)
        found[RANDOM_BOUND] = Unlimited()
    for number, request in enumerate(workload.requests()):
        ids, size, total = request.block_ids, request.block_tokens, request.input_tokens
        placed = tenancy.place(request)
        for isolation, identities in names.items():
            named = identities.name(ids, placed.tenant, placed.layers)
            found[isolation.value].take(named, size, total)
        if torn is not None:
            stranger = torn.place(request)
            named = names[Isolation.USER].name(ids, stranger.tenant, stranger.layers)
            found[RANDOM_BOUND].take(named, size, total)
        if progress is not None and not number & 255:
            progress(number)
    return {name: bound.token_hit_rate for name, bound in found.items()}
