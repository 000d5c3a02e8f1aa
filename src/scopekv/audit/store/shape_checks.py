"""What sizes, modes, ages and counts say; and, plainly, what a thief does learn."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

from scopekv.audit.results import Check, Plain, Severity, Verdict
from scopekv.audit.store.examining import Examined
from scopekv.audit.store.judging import judged, not_tested, plural
from scopekv.core.chains import tags_of

SIZES_MAX = 4  # a store of several models has a few
QUARANTINED_MAX = 16  # as many as a directory keeps, for each instance's
_BURST_GAP_SECONDS = 2.0


def sizes(stores: Sequence[Examined]) -> Check:
    """Every block of a model is as long as every other."""
    found = {one.place: _sizes(one) for one in stores}
    counts = [count for one in found.values() for count in one.values()]
    return judged(
        "store.sizes",
        "Sizes say nothing of what is inside",
        broken=[
            f"{one.kind}: {len(found[one.place])} different sizes of objects"
            for one in stores
            if len(found[one.place]) > SIZES_MAX
        ],
        held=f"objects have {' and '.join(str(len(one)) for one in found.values())} sizes",
        control="several objects of different prompts lay in every store",
        control_ok=bool(found) and all(sum(one.values()) > 1 for one in found.values()),
        tried=sum(counts),
        severity=Severity.MEDIUM,
        evidence={place: len(one) for place, one in found.items()},
    )


def _sizes(one: Examined) -> Counter[int]:
    return Counter(found.size_bytes for found in one.objects if found.is_block)


def modes(stores: Sequence[Examined], scratch: Examined) -> Check:
    """Nobody else on the machine reads or lists a directory."""
    name, title = "store.modes", "Files are their owner's alone"
    directories = [one for one in stores if one.kind == "directory"]
    if not directories:
        return not_tested(name, title, "no store is a directory", Severity.MEDIUM)
    broken = []
    for one in directories:
        if one.loose:
            broken.append(f"{plural(one.loose, 'entry')} open to other users")
        if len(one.owners) > 1:
            broken.append(f"files of {len(one.owners)} different users in one store")
        if one.links:
            broken.append(f"{plural(one.links, 'entry')} neither file nor folder")
    listed = sum(len(one.listed) for one in directories)
    return judged(
        name,
        title,
        broken=broken,
        held=f"{plural(listed, 'entry')}, none open to others, all of one user",
        control="files of mode 0644 in a scratch store were seen",
        control_ok=scratch.loose > 0,
        tried=listed,
        severity=Severity.MEDIUM,
    )


def leftovers(stores: Sequence[Examined], scratch: Examined) -> Check:
    """Nothing stays that should be gone."""
    broken = []
    for one in stores:
        if one.overdue:
            broken.append(f"{one.kind}: {plural(one.overdue, 'object')} past retention")
        if one.unfinished:
            broken.append(f"{one.kind}: {plural(one.unfinished, 'file')} unfinished for an hour")
        folders = max(1, sum(part.is_folder and "-state" not in part.name for part in one.listed))
        if len(one.quarantined) > QUARANTINED_MAX * folders:
            broken.append(f"{one.kind}: {len(one.quarantined)} objects in quarantine")
    quarantined = sum(len(one.quarantined) for one in stores)
    return judged(
        "store.leftovers",
        "Nothing stays beyond its retention, half written or set aside without bound",
        broken=broken,
        held=f"nothing overdue or unfinished; {plural(quarantined, 'object')} in quarantine",
        control="an object past its retention in a scratch store was seen",
        control_ok=scratch.overdue > 0 and bool(stores),
        tried=sum(len(one.objects) for one in stores),
        severity=Severity.MEDIUM,
        evidence={"quarantined": quarantined},
    )


def learned(stores: Sequence[Examined]) -> Check:
    """Not a fault: what whoever holds a store does see, said plainly."""
    told = {one.place: _learned(one) for one in stores}
    chains = sum(_count(one, "chains") for one in told.values())
    scopes = sum(_count(one, "scopes") for one in told.values())
    bursts = sum(_count(one, "bursts_of_writes") for one in told.values())
    objects = sum(_count(one, "objects") for one in told.values())
    return Check(
        "store.learned",
        "What a thief learns: counts, sizes, times and which objects belong together",
        Verdict.HELD,
        f"{plural(objects, 'object')} in {plural(chains, 'folder')} of "
        f"{plural(scopes, 'opaque tag')}, written in {plural(bursts, 'burst')}: "
        "that much, and the retention of each folder",
        Severity.LOW,
        objects,
        "",
        dict(told),
    )


def _learned(one: Examined) -> dict[str, Plain]:
    by_chain = Counter(found.chain for found in one.objects if found.chain)
    tags = {tag for chain in by_chain for tag in tags_of(chain)}
    depths = Counter(len(tags_of(chain)) for chain in by_chain)
    times = sorted(found.stored_at for found in one.objects if found.stored_at is not None)
    gaps = sum(b - a > _BURST_GAP_SECONDS for a, b in itertools.pairwise(times))
    return {
        "objects": len(one.objects),
        "bytes": one.size_bytes,
        "chains": len(by_chain),
        "scopes": len(tags),
        "chains_by_scopes": {str(depth): count for depth, count in sorted(depths.items())},
        "objects_in_largest_chain": max(by_chain.values(), default=0),
        "sizes": len(_sizes(one)),
        "retentions": len({chain.partition("-")[0] for chain in by_chain}),
        "first_written_at": int(times[0]) if times else None,
        "last_written_at": int(times[-1]) if times else None,
        "bursts_of_writes": gaps + 1 if times else 0,
        "quarantined": len(one.quarantined),
        "manifests": one.manifests,
        "of_other_programs": one.others,
    }


def _count(told: dict[str, Plain], name: str) -> int:
    found = told[name]
    return found if isinstance(found, int) else 0
