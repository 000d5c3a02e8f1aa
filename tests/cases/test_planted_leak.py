"""A planted leak must be seen: with the scopes left out of the block tag, these tests turn red."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
MUST_FAIL = (
    "tests/cases/test_isolation_cases.py::test_i1_a_field_set_to_anothers_value_opens_nothing",
    "tests/cases/test_isolation_cases.py::test_i7_names_that_join_to_the_same_text_are_apart",
    "tests/cases/test_isolation_cases.py::test_i8_the_credential_wins_over_what_the_request_names",
    "tests/cases/test_isolation_cases.py::test_i13_the_first_touch_of_unpublished_text_is_a_miss",
    "tests/cases/test_identity_cases.py::test_i4_an_adapter_named_like_a_scope_or_salt_is_neither",
    "tests/http/test_sharing.py::test_crossing_audiences_meet_in_their_intersection",
    "tests/http/test_sharing.py::test_disjoint_audiences_share_nothing",
    "tests/http/test_sharing.py::test_end_users_and_sessions_of_a_service_account",
    "tests/http/test_revocation.py::test_i14_a_removed_member_reads_no_more",
    "tests/http/test_revocation.py::test_a_revised_document_starts_anew",
)
STAYS_GREEN = "tests/http/test_usage.py::test_whole_and_stream_count_the_same"


def test_a_scope_left_out_of_the_tag_turns_these_tests_red() -> None:
    """One subprocess with the leak in it; a test that has nothing to do with scopes stays green."""
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "leak", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *MUST_FAIL, STAYS_GREEN],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parent / "planted")},
        capture_output=True,
        text=True,
        timeout=240,
    )
    lines = done.stdout.splitlines()
    failed = {
        name for name in MUST_FAIL if any(line.startswith(f"FAILED {name}") for line in lines)
    }
    assert len(failed) >= 3
    assert failed == set(MUST_FAIL), set(MUST_FAIL) - failed
    assert f"PASSED {STAYS_GREEN}" in lines
