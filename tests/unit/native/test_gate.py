"""The gate: the first rule that matches decides."""

import pytest

from kafkacore._fast.plane.gate import GatePolicy


def test_without_rules_it_says_what_it_says_otherwise() -> None:
    assert GatePolicy().judge(0, "me") == ("serve", 0, 0, 0)
    assert GatePolicy("punt").judge(1, None) == ("punt", 0, 0, 0)


def test_rules_match_by_api_and_client() -> None:
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


def test_a_rule_may_be_used_up() -> None:
    gate = GatePolicy(rules=[{"action": "close", "times": 2}])
    assert [gate.judge(0, None)[0] for _ in range(3)] == ["close", "close", "serve"]


def test_an_empty_client_id_is_not_a_null_one() -> None:
    gate = GatePolicy(rules=[{"action": "close", "client_id": ""}])
    assert gate.judge(0, None)[0] == "serve"
    assert gate.judge(0, "")[0] == "close"


def test_an_unknown_action_is_named() -> None:
    with pytest.raises(ValueError, match="serve, punt, error, close"):
        GatePolicy("sometimes")
