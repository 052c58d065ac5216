"""`kafkacore features` asks for the same feature levels as kafka-features.sh of Apache Kafka 4.3."""

from __future__ import annotations

import argparse

import pytest

from kafkacore.tools import features
from kafkacore.tools.admin import AdminError, check


def asked(*words: str) -> dict[str, int]:
    parser = argparse.ArgumentParser()
    features.add_arguments(parser)
    return features._levels_asked(parser.parse_args(["--bootstrap-server", "localhost:1", *words]))


@pytest.mark.parametrize(
    ("release", "levels"),
    [
        ("3.9", {"metadata.version": 21, "kraft.version": 1}),
        ("4.0", {"metadata.version": 25, "kraft.version": 1, "transaction.version": 2, "group.version": 1}),
        (
            "4.3",
            {
                "metadata.version": 30, "kraft.version": 1, "transaction.version": 2, "group.version": 1,
                "eligible.leader.replicas.version": 1, "share.version": 1, "streams.version": 1,
            },
        ),
    ],
)  # fmt: skip
def test_upgrade_to_a_release_asks_for_every_feature_above_level_0(release: str, levels: dict[str, int]) -> None:
    assert asked("upgrade", "--release-version", release) == levels


def test_downgrade_to_a_release_also_asks_for_level_0() -> None:
    assert asked("downgrade", "--release-version", "3.9") == {
        "metadata.version": 21, "kraft.version": 1, "transaction.version": 0, "group.version": 0,
        "eligible.leader.replicas.version": 0, "share.version": 0, "streams.version": 0,
    }  # fmt: skip


def test_admin_tool_says_that_an_error_is_unknown_when_a_broker_answers_with_a_newer_code() -> None:
    with pytest.raises(AdminError, match="an unexpected error occurred on the server"):
        check(9999, None)
