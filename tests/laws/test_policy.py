"""Laws of policy and segments: the server decides (L2), and nothing a client sends widens."""

from __future__ import annotations

import importlib.util
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scopekv.core.policy import Document, Level, PartRole, RoleRules, decide, may_read
from scopekv.core.reasons import ScopeReason
from scopekv.core.scopes import Audience, Narrowing, Principal, Scope, ScopeKind, private_scope
from scopekv.core.segments import SEGMENTS_MAX, Part, decide_parts, decided, plan_segments
from scopekv.errors import Misuse
from scopekv.gateway.documents import DocumentIndex
from scopekv.gateway.prompts import Caller

_spec = importlib.util.spec_from_file_location(
    "reference_policy", Path(__file__).parents[1] / "reference" / "policy.py"
)
assert _spec
assert _spec.loader
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

LAW = settings(deadline=None)
ORGS, NAMES = ("a", "ab", "A"), ("bc", "c", "a")
WIDTH = list(ScopeKind)


@st.composite
def principals(draw: st.DrawFn) -> Principal:
    org, name = draw(st.sampled_from(ORGS)), draw(st.sampled_from(NAMES))
    groups = draw(st.frozensets(st.sampled_from(NAMES), max_size=2))
    roles = draw(st.frozensets(st.sampled_from(["operator", "org_admin"])))
    return Principal(org, name, f"org_{org}", f"usr_{org}_{name}", groups, roles)


audiences = st.one_of(
    st.just("public"),
    st.sampled_from(ORGS).map(lambda org: f"org:{org}"),
    st.builds(
        lambda kind, org, name: f"{kind}:{org}/{name}",
        st.sampled_from(["group", "user"]),
        st.sampled_from(ORGS),
        st.sampled_from(NAMES),
    ),
).map(Audience.parse)
documents = st.builds(
    Document, st.sampled_from(["doc_1", "doc_2", "org_a"]), audiences, st.booleans()
)
levels = st.sampled_from(Level)
rules = st.builds(RoleRules, levels, levels, levels)
free = st.sampled_from(["", "x", "usr_a_c", "org_a"])
narrowings = st.builds(Narrowing, free, free)
parts = st.builds(Part, st.sampled_from(PartRole), st.one_of(st.none(), documents))
prompts = st.lists(parts, max_size=6)


def _rules(given_rules: RoleRules) -> dict[str, str]:
    return {role.value: given_rules.level(role).value for role in PartRole}


def _flat(scope: Scope) -> tuple[str, ...]:
    return (scope.kind.value, *scope.path)


@LAW
@given(principals(), narrowings, rules, prompts)
def test_policy_equals_its_reference(
    who: Principal, narrowing: Narrowing, given_rules: RoleRules, prompt: list[Part]
) -> None:
    own = reference.private(who, narrowing.end_user, narrowing.session)
    decisions = decide_parts(prompt, who, narrowing, given_rules)
    assert _flat(private_scope(who, narrowing)) == own
    flat_parts = [(part.role.value, part.document) for part in prompt]
    expected = reference.scopes(who, own, _rules(given_rules), flat_parts)
    assert [_flat(decision.scope) for decision in decisions] == expected


@LAW
@given(principals(), narrowings, narrowings, rules, prompts)
def test_nothing_a_client_sends_widens(
    who: Principal, sent: Narrowing, other: Narrowing, given_rules: RoleRules, prompt: list[Part]
) -> None:
    """L2: every scope is a document's that may be read, the caller's own organisation, or own."""
    for part, decision in zip(prompt, decide_parts(prompt, who, sent, given_rules), strict=True):
        scope = decision.scope
        if scope.kind is ScopeKind.DOCUMENT:
            assert part.document is not None
            assert scope == part.document.scope
            assert may_read(who, part.document)[0]
        elif scope.kind is ScopeKind.ORG:
            assert scope.path == (who.org_uid,)
            assert given_rules.level(part.role) is Level.ORG
        else:
            assert scope.path[:2] == (who.org_uid, who.uid)
    if sent != other:
        assert private_scope(who, sent) != private_scope(who, other)


@LAW
@given(principals(), narrowings, rules, prompts)
def test_narrowing_never_widens(
    who: Principal, narrowing: Narrowing, given_rules: RoleRules, prompt: list[Part]
) -> None:
    """A header can only take sharing away, part by part."""
    plain = decide_parts(prompt, who, Narrowing(), given_rules)
    narrowed = decide_parts(prompt, who, narrowing, given_rules)
    for before, after in zip(plain, narrowed, strict=True):
        assert WIDTH.index(after.scope.kind) >= WIDTH.index(before.scope.kind)
        if after.scope.kind in (ScopeKind.DOCUMENT, ScopeKind.ORG):
            assert after == before
    assert private_scope(who, narrowing).epoch_owner == private_scope(who, Narrowing())


@LAW
@given(principals(), narrowings, rules, documents, st.sampled_from(PartRole), st.booleans())
def test_a_denied_document_is_the_callers_own_text(
    who: Principal,
    narrowing: Narrowing,
    given_rules: RoleRules,
    document: Document,
    role: PartRole,
    before: bool,
) -> None:
    """L10: default deny; a reason for the operator, and no scope of the document."""
    decision = decide(who, narrowing, given_rules, role, document, private_before=before)
    if may_read(who, document)[0]:
        assert (decision.scope, decision.allowed) == (document.scope, True)
    else:
        assert (decision.scope, decision.allowed) == (private_scope(who, narrowing), False)
        withdrawn = decision.reason is ScopeReason.DENIED_WITHDRAWN
        assert withdrawn == document.withdrawn


@LAW
@given(principals(), narrowings, rules, prompts)
def test_only_documents_are_wide_after_private_text(
    who: Principal, narrowing: Narrowing, given_rules: RoleRules, prompt: list[Part]
) -> None:
    own = private_scope(who, narrowing)
    seen = False
    for decision in decide_parts(prompt, who, narrowing, given_rules):
        assert not (seen and decision.scope.kind is ScopeKind.ORG)
        seen = seen or decision.scope == own


OWN = Scope(ScopeKind.USER, ("o", "u"))
some_scopes = st.sampled_from(
    [OWN, Scope(ScopeKind.ORG, ("o",)), *(Scope(ScopeKind.DOCUMENT, (f"d{i}",)) for i in range(9))]
)
planned = st.lists(st.tuples(some_scopes, st.integers(0, 3)), max_size=60)


@LAW
@given(planned)
def test_segments_are_a_partition_and_the_last_is_private(
    plan: list[tuple[Scope, int]],
) -> None:
    scopes, ends = [scope for scope, _ in plan], list(accumulate(size for _, size in plan))
    segments = plan_segments(scopes, ends, OWN)
    assert 1 <= len(segments) <= SEGMENTS_MAX
    assert (segments[-1].end, segments[-1].scope) == (None, OWN)
    position = 0
    for before, segment in zip((None, *segments), segments, strict=False):
        assert segment.start == position
        assert before is None or before.scope != segment.scope
        if segment.end is not None:
            assert segment.end > segment.start
            position = segment.end
    assert len(segments) == 1 or segments[-2].scope != OWN
    # Every token of a closed segment was decided to be of that scope.
    for segment in segments[:-1]:
        for token in range(segment.start, segment.end or 0):
            part = next(i for i, end in enumerate(ends) if token < end)
            assert scopes[part] == segment.scope


@LAW
@given(planned)
def test_segments_equal_their_reference(plan: list[tuple[Scope, int]]) -> None:
    scopes, ends = [scope for scope, _ in plan], list(accumulate(size for _, size in plan))
    segments = plan_segments(scopes, ends, OWN)
    flat = [_flat(scope) for scope in scopes]
    expected = reference.segments(flat, ends, _flat(OWN), SEGMENTS_MAX)
    assert [(s.start, s.end, _flat(s.scope)) for s in segments] == expected


@LAW
@given(planned.filter(bool), st.data())
def test_a_part_without_a_token_of_its_own_ends_all_sharing(
    plan: list[tuple[Scope, int]], data: st.DataObject
) -> None:
    """Its text sits in a neighbour's token, so from there on no segment is wide."""
    at = data.draw(st.integers(0, len(plan) - 1))
    plan[at] = (plan[at][0], 0)
    ends = list(accumulate(size for _, size in plan))
    segments = plan_segments([scope for scope, _ in plan], ends, OWN)
    assert all(segment.end is None or segment.end <= ends[at] for segment in segments)


@given(st.integers(513, 600), st.booleans())
def test_a_narrowing_has_a_bound(size: int, session: bool) -> None:
    with pytest.raises(Misuse, match="512"):
        Narrowing(session="x" * size) if session else Narrowing(end_user="x" * size)


@LAW
@given(principals(), narrowings, rules, st.lists(prompts, min_size=2, max_size=6))
def test_what_a_caller_was_decided_before_changes_no_decision(
    principal: Principal, narrowing: Narrowing, given_rules: RoleRules, sent: list[list[Part]]
) -> None:
    caller = Caller(principal, narrowing, given_rules, DocumentIndex(()))
    for asked in [*sent, *sent]:
        made = caller.decided(asked)
        decisions = decide_parts(asked, principal, narrowing, given_rules)
        assert made == decided(asked, principal, narrowing, given_rules)
        assert list(made.scopes) == [decision.scope for decision in decisions]
        for part, shared, decision in zip(asked, made.documents, decisions, strict=True):
            assert shared == (part.document is not None and decision.allowed)
        for index, owner in enumerate(made.owners):
            scopes = [*made.scopes, caller.private][: index + 1]
            assert set(owner) == {(scope.kind.value, scope.path) for scope in scopes}
