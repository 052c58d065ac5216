"""The threads that nodes of a process share: how many serve the data plane."""

from __future__ import annotations

from kafkacore.runtime.process import CONTROLLER, DATA, Runtime, default_processors


def test_the_node_that_wants_most_processors_is_followed() -> None:
    first = Runtime.shared(1)
    try:
        before = first.processors(DATA)
        assert len(before) == 1
        assert Runtime.shared(3) is first
        assert first.processors(DATA)[:1] == before and len(first.processors(DATA)) == 3
        # Whoever came before keeps what it had, and fewer are no reason to end one.
        assert len(before) == 1
        Runtime.shared(2)
        assert len(first.processors(DATA)) == 3
        assert len(first.processors(CONTROLLER)) == 1
        first.release()
        first.release()
    finally:
        first.release()


def test_a_node_that_says_nothing_gets_what_the_machine_is_good_for() -> None:
    runtime = Runtime.shared()
    try:
        assert len(runtime.processors(DATA)) == default_processors()
    finally:
        runtime.release()
