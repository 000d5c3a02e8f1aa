"""When a tier in trouble is tried again."""

from __future__ import annotations

import pytest

from scopekv.store.circuit import Circuit


def test_a_circuit_waits_longer_each_time_and_remembers_a_relapse() -> None:
    now = [0.0]
    circuit = Circuit(0.1, 5.0, lambda: now[0])
    assert circuit.probe_due() is None
    assert circuit.trip()
    assert not circuit.trip(), "it is suspended already"
    waits = []
    for _ in range(8):
        due = circuit.probe_due()
        assert due is not None
        waits.append(round(due, 3))
        now[0] += due
        assert circuit.probe_due() == pytest.approx(0.0, abs=1e-9)
        circuit.probed(False)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    circuit.probed(True)
    assert not circuit.suspended
    circuit.trip()
    assert circuit.probe_due() == 5.0, "trouble again at once"
    circuit.probed(True)
    now[0] += 60
    circuit.trip()
    assert circuit.probe_due() == pytest.approx(0.1), "trouble after a long while"
