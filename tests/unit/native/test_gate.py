"""The gate, which decides how a processor (a native thread that serves connections) treats a request. The first rule
that matches a request decides.
"""

import pytest

from kafkacore._fast.plane.gate import GatePolicy


def test_gate_without_rules_gives_its_default_action() -> None:
    assert GatePolicy().judge(0, "me") == ("serve", 0, 0, 0)
    assert GatePolicy("punt").judge(1, None) == ("punt", 0, 0, 0)


def test_gate_rules_match_by_api_and_client() -> None:
    gate = GatePolicy(
        "serve",
        [
            {"action": "error", "api_key": 0, "client_id": "bad", "error": 7},
            {"action": "punt", "client_id": "watched", "mute_ms": 5},
            {"action": "serve", "api_key": 1, "delay_ms": 30},
        ],
    )
    assert gate.judge(0, "bad") == ("error", 7, 0, 0)
    assert gate.judge(0, "bad2") == ("serve", 0, 0, 0)
    assert gate.judge(0, "watched") == ("punt", 0, 5, 0)
    assert gate.judge(1, None) == ("serve", 0, 0, 30)


def test_gate_rule_ends_after_its_number_of_times() -> None:
    gate = GatePolicy(rules=[{"action": "close", "times": 2}])
    assert [gate.judge(0, None)[0] for _ in range(3)] == ["close", "close", "serve"]


def test_gate_distinguishes_an_empty_client_id_from_null() -> None:
    gate = GatePolicy(rules=[{"action": "close", "client_id": ""}])
    assert gate.judge(0, None)[0] == "serve"
    assert gate.judge(0, "")[0] == "close"


def test_gate_refuses_an_unknown_action() -> None:
    with pytest.raises(ValueError, match="serve, punt, error, close"):
        GatePolicy("sometimes")
