"""An instance that fails is left alone for a while, then tried."""

from __future__ import annotations

from scopekv.core.circuit import Circuit, CircuitLimits


def test_a_circuit_opens_after_failures_in_a_row_and_closes_after_one_success() -> None:
    circuit = Circuit(CircuitLimits(failures=2, first_seconds=1, longest_seconds=3))
    assert not circuit.failed(0.0)
    circuit.worked()
    assert not circuit.failed(1.0)
    assert circuit.failed(2.0)
    assert not circuit.allows(2.9)
    assert circuit.allows(3.0)
    circuit.begins(3.0)
    assert not circuit.allows(3.1), "one probe at a time"
    circuit.failed(3.2)
    assert not circuit.allows(5.1), "and a longer wait after it"
    assert circuit.allows(5.2)
    circuit.worked()
    assert circuit.allows(5.3)
    assert not circuit.open


def test_a_probe_that_nobody_reports_on_does_not_hold_the_circuit_open() -> None:
    circuit = Circuit(CircuitLimits(failures=1, probe_seconds=10))
    circuit.failed(0.0)
    circuit.begins(1.0)
    assert not circuit.allows(10.9)
    assert circuit.allows(11.0)


def test_a_probe_that_ended_without_a_word_makes_room_for_another() -> None:
    circuit = Circuit(CircuitLimits(failures=1, probe_seconds=10))
    assert not circuit.begins(0.0), "while closed there is none"
    circuit.failed(0.0)
    assert circuit.begins(1.0)
    assert not circuit.allows(1.1)
    circuit.probed()
    assert circuit.allows(1.2)
    assert circuit.open
