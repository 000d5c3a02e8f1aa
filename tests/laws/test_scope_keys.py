"""Laws of names and keys: two scopes never meet, whatever they are called (I4, I7)."""

from __future__ import annotations

from itertools import combinations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from scopekv.core.blocks import BlockTagger, Fingerprint, Namespace, block_tag
from scopekv.core.enforcement import IsolatedTags
from scopekv.core.scopes import Narrowing, Principal, Scope, ScopeId, ScopeKind, private_scope

LAW = settings(deadline=None)
SECRET, OTHER_SECRET = b"s" * 32, b"t" * 32
HOME = Fingerprint(b"n" * 32)

# Parts whose joins collide, names that look like another kind's, and free text (I7).
PARTS = ("", "1", "12", "2345", "org_1", "org_12345", "org_1/2345", "org", "user", "session", "\0")
parts = st.one_of(st.sampled_from(PARTS), st.text(max_size=6))
LENGTHS = {
    ScopeKind.DOCUMENT: 1,
    ScopeKind.ORG: 1,
    ScopeKind.USER: 2,
    ScopeKind.END_USER: 3,
    ScopeKind.SESSION: 4,
}


@st.composite
def scopes(draw: st.DrawFn) -> Scope:
    kind = draw(st.sampled_from(ScopeKind))
    return Scope(kind, tuple(draw(parts) for _ in range(LENGTHS[kind])))


U = ScopeKind.USER
E = ScopeKind.END_USER
S = ScopeKind.SESSION
pairs = st.tuples(scopes().map(lambda scope: scope.id(SECRET)), st.integers(0, 3))
runs = st.lists(pairs, min_size=1, max_size=3)


@LAW
@given(scopes(), scopes())
@example(Scope(U, ("org_1", "2345")), Scope(U, ("org_12345", "")))
@example(Scope(U, ("a", "b/c")), Scope(U, ("a/b", "c")))
@example(Scope(E, ("a", "b", "")), Scope(U, ("a", "b")))
@example(Scope(S, ("a", "b", "", "c")), Scope(E, ("a", "b", "c")))
@example(Scope(S, ("a", "b", "c", "")), Scope(S, ("a", "b", "", "c")))
@example(Scope(ScopeKind.ORG, ("x",)), Scope(ScopeKind.DOCUMENT, ("x",)))
def test_distinct_scopes_never_share_a_key(one: Scope, other: Scope) -> None:
    same = one == other
    assert (one.id(SECRET) == other.id(SECRET)) == same
    assert (one.salt(SECRET, 0) == other.salt(SECRET, 0)) == same
    tags = [block_tag(HOME, [(scope.id(SECRET), 0)]) for scope in (one, other)]
    assert (tags[0] == tags[1]) == same


@LAW
@given(runs, runs, st.binary(max_size=32), st.binary(max_size=32))
def test_distinct_runs_and_adapters_never_share_a_tag(
    run: list[tuple[ScopeId, int]],
    other: list[tuple[ScopeId, int]],
    adapter: bytes,
    other_adapter: bytes,
) -> None:
    same = (run, adapter) == (other, other_adapter)
    assert (block_tag(HOME, run, adapter) == block_tag(HOME, other, other_adapter)) == same


@LAW
@given(scopes(), st.integers(0, 2))
def test_an_adapter_named_like_a_scope_is_no_scope(scope: Scope, epoch: int) -> None:
    """I4: what an attacker may name stands in a place of its own."""
    scope_id, salt = scope.id(SECRET), scope.salt(SECRET, 0)
    scoped = block_tag(HOME, [(scope_id, epoch)])
    other = ScopeId(bytes(16))
    for adapter in (scope_id, salt.encode(), scoped.encode(), bytes.fromhex(scoped)):
        assert block_tag(HOME, [(other, epoch)], adapter) != scoped
        assert block_tag(HOME, [(scope_id, epoch)], adapter) != scoped


@LAW
@given(scopes())
def test_names_are_opaque_and_hang_on_the_secret(scope: Scope) -> None:
    assert len(scope.id(SECRET)) == 16
    salt = scope.salt(SECRET, 0)
    assert len(salt) == 64
    assert set(salt) <= set("0123456789abcdef")  # vLLM refuses `@ / \ NUL`
    assert scope.id(SECRET) != scope.id(OTHER_SECRET)
    assert salt != scope.salt(OTHER_SECRET, 0)
    assert salt != scope.salt(SECRET, 1)  # an epoch counts without the plugin as well
    assert scope.id(SECRET).hex() not in salt


@LAW
@given(pairs, st.integers(0, 2**40), st.integers(0, 2**40))
def test_an_epoch_changes_the_tag(pair: tuple[ScopeId, int], epoch: int, later: int) -> None:
    """L6, the logical part: what was written before a revocation has another name after it."""
    tags = [block_tag(HOME, [(pair[0], at)]) for at in (epoch, later)]
    assert (tags[0] == tags[1]) == (epoch == later)


@LAW
@given(st.data())
def test_every_field_of_the_namespace_counts(data: st.DataObject) -> None:
    """I5: model, revision, dtype, kv dtype, block size, layout and hash each part the engines."""
    names = ["model", "revision", "tokenizer", "dtype", "kv_dtype", "layout", "hash_algorithm"]
    given_fields = {name: data.draw(st.sampled_from(["x", "xy", ""])) for name in names}
    size = data.draw(st.sampled_from([16, 32]))
    home = Namespace(block_size=size, **given_fields)
    changed = data.draw(st.sampled_from([*names, "block_size"]))
    if changed == "block_size":
        other = Namespace(block_size=size + 16, **given_fields)
    else:
        fields = {**given_fields, changed: given_fields[changed] + "y"}
        other = Namespace(block_size=size, **fields)
    assert home.fingerprint() != other.fingerprint()
    run = [(ScopeId(b"s" * 16), 0)]
    assert block_tag(home.fingerprint(), run) != block_tag(other.fingerprint(), run)


def test_neighbouring_fields_of_the_namespace_do_not_join() -> None:
    parts = ["m", "ab", "c", "d", "e"]
    seen = set()
    for a, b in combinations(range(5), 2):
        model, revision, tokenizer, dtype, kv_dtype = _swapped(parts, a, b)
        home = Namespace(model, revision, tokenizer, dtype, kv_dtype, 32, "l", "h")
        seen.add(home.fingerprint())
    assert len(seen) == 10


def _swapped(parts: list[str], a: int, b: int) -> list[str]:
    moved = list(parts)
    moved[a], moved[b] = moved[b], moved[a]
    return moved


@LAW
@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_client_narrowing_stays_with_the_caller(
    end_user: str, session: str, other_end_user: str, other_session: str
) -> None:
    """No value that one caller sends reaches a scope of another caller."""
    ann = Principal("acme", "ann", "org_1", "2345")
    eve = Principal("evil", "eve", "org_12345", "")
    mine = private_scope(ann, Narrowing(end_user, session))
    theirs = private_scope(eve, Narrowing(other_end_user, other_session))
    assert mine.id(SECRET) != theirs.id(SECRET)
    assert mine.salt(SECRET, 0) != theirs.salt(SECRET, 0)
    assert mine.path[:2] == ("org_1", "2345")
    same = (end_user, session) == (other_end_user, other_session)
    also_mine = private_scope(ann, Narrowing(other_end_user, other_session))
    assert (mine.id(SECRET) == also_mine.id(SECRET)) == same


@LAW
@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16), runs)
def test_isolated_tags_meet_nothing(
    nonce: bytes, other: bytes, run: list[tuple[ScopeId, int]]
) -> None:
    tag = IsolatedTags(nonce).tag(0, 32)
    assert (tag == IsolatedTags(other).tag(0, 32)) == (nonce == other)
    assert tag != BlockTagger(HOME, (), run[:1]).tag(0, 32)
