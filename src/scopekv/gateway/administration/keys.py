"""Administration of API keys: made, shown once, rotated, blocked, deleted."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from scopekv.core.administration import (
    KEY_PREFIX,
    KEY_RANDOM_BYTES,
    Action,
    Resource,
    api_key,
    api_key_digest,
)
from scopekv.core.scopes import Principal
from scopekv.errors import Conflict, Misuse
from scopekv.gateway.administration import views
from scopekv.gateway.administration.gate import Act, Gate
from scopekv.ports import ApiKey

OVERLAP_SECONDS_MAX = 30 * 24 * 3600
OWN_KEYS_MAX = 50


class KeyAdministration:
    """API keys. `clock` gives Unix seconds, `random` that many random bytes."""

    def __init__(
        self, gate: Gate, clock: Callable[[], float], random: Callable[[int], bytes]
    ) -> None:
        self._gate = gate
        self._clock = clock
        self._random = random

    def create(
        self, caller: Principal, org: str, owner: str, *, label: str, expires_at: float | None
    ) -> views.NewKeyView:
        """Make a key for an account. The secret is in the answer and nowhere else."""
        if KEY_PREFIX in label:
            raise Misuse("the label looks like an API key; it was not kept")
        self._check_expiry(expires_at)
        with self._gate.act(caller, Action.KEY_CREATE, f"key of {org}/{owner}") as act:
            home = act.org(org)
            account = act.account(home, owner).principal
            act.require(Resource(home.uid, account=account))
            return self._make(act, account.uid, label, expires_at)

    def create_own(
        self, caller: Principal, *, label: str, expires_at: float | None
    ) -> views.NewKeyView:
        """Make a key for the caller, that ends no later than what it called with allows.

        With a token: when the settings say (`Grant.keys_end_at`). With a key: when the last of
        its account's keys does, so that a key with an end never makes one without.
        """
        if KEY_PREFIX in label:
            raise Misuse("the label looks like an API key; it was not kept")
        self._check_expiry(expires_at)
        with self._gate.act(caller, Action.KEY_CREATE, "own key") as act:
            me = act.caller
            act.require(Resource(me.org_uid, account=me))
            held = self._room(act)
            last = me.grant.keys_end_at if me.grant else self._last_end(held)
            if expires_at is not None and expires_at > last:
                raise Misuse(f"expires_at must be at most {int(last)}, or left out")
            if last <= self._clock():
                raise Conflict("what you called with has ended; sign in anew")
            end = expires_at or (None if math.isinf(last) else last)
            return self._make(act, me.uid, label, end)

    def list(
        self, caller: Principal, org: str, *, owner: str | None, after: str, limit: int
    ) -> views.Page:
        """The keys of one account, or of the whole organisation. Members may list their own."""
        label = f"keys of {org}/{owner or '*'}"
        with self._gate.look(caller, Action.KEY_SHOW, label) as act:
            home = act.org(org)
            if owner is not None and owner == act.caller.name and org == act.caller.org:
                account = act.caller
                act.require(Resource(home.uid, account=account))
                uid = account.uid
            else:
                act.require(Resource(home.uid))
                uid = "" if owner is None else act.account(home, owner).principal.uid
            items = act.tx.keys.list(home.uid, uid, after, limit + 1)
            return views.page(items, limit, views.key, lambda item: item.uid)

    def rotate(self, caller: Principal, uid: str, *, overlap_seconds: int) -> views.NewKeyView:
        """Replace a key by a new one of the same owner, label and end.

        The old one ends after `overlap_seconds`; without any it is deleted. A blocked or expired
        key is not rotated (`Conflict`): that would bring it back to life.
        """
        if not 0 <= overlap_seconds <= OVERLAP_SECONDS_MAX:
            raise Misuse(f"the overlap must be 0 to {OVERLAP_SECONDS_MAX} seconds")
        now = self._clock()
        with self._gate.act(caller, Action.KEY_ROTATE, f"key:{uid}") as act:
            old, owner = act.key(uid)
            act.require(Resource(old.org_uid, account=owner.principal))
            if old.blocked or (old.expires_at is not None and old.expires_at <= now):
                raise Conflict(
                    "the key is blocked or has expired, so it cannot be rotated; an administrator "
                    "can create a new one"
                )
            if overlap_seconds and owner.principal.uid == act.caller.uid:
                self._room(act)  # both stay for a while
            new = self._make(act, old.account_uid, old.label, old.expires_at)
            if overlap_seconds:
                act.tx.keys.expire(uid, now + overlap_seconds)
            else:
                act.tx.keys.delete(uid)
            return new

    def set_blocked(self, caller: Principal, uid: str, blocked: bool) -> views.KeyView:
        action = Action.KEY_BLOCK if blocked else Action.KEY_UNBLOCK
        with self._gate.act(caller, action, f"key:{uid}") as act:
            key = self._changeable(act, uid)
            act.tx.keys.set_blocked(uid, blocked)
            return views.key(act.tx.keys.get(uid) or key)

    def delete(self, caller: Principal, uid: str) -> views.Deleted:
        with self._gate.act(caller, Action.KEY_DELETE, f"key:{uid}") as act:
            self._changeable(act, uid)
            act.tx.keys.delete(uid)
            return views.Deleted(deleted=uid)

    def _changeable(self, act: Act, uid: str) -> ApiKey:
        key, owner = act.key(uid)
        act.require(Resource(key.org_uid, account=owner.principal))
        return key

    @staticmethod
    def _room(act: Act) -> Sequence[ApiKey]:
        """The caller's keys. Raises `Conflict` where there is no room for one of their making."""
        me = act.caller
        held = act.tx.keys.list(me.org_uid, me.uid, "", OWN_KEYS_MAX)
        if len(held) >= OWN_KEYS_MAX:
            raise Conflict(f"you have {len(held)} keys; the limit is {OWN_KEYS_MAX}: delete some")
        return held

    def _make(
        self, act: Act, account_uid: str, label: str, expires_at: float | None
    ) -> views.NewKeyView:
        secret = api_key(self._random(KEY_RANDOM_BYTES))
        key = act.tx.keys.create(account_uid, api_key_digest(secret), label, expires_at)
        act.resource += f" new:{key.uid}"
        return views.NewKeyView(key=views.key(key), secret=secret)

    def _last_end(self, keys: Sequence[ApiKey]) -> float:
        """When the last of these keys that are not blocked ends; infinity for never."""
        ends = [key.expires_at for key in keys if not key.blocked]
        return max((math.inf if end is None else end for end in ends), default=0.0)

    def _check_expiry(self, expires_at: float | None) -> None:
        if expires_at is not None and not self._clock() < expires_at < 2**40:
            raise Misuse("expires_at must be in the future, in Unix seconds")
