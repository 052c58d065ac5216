"""The names of topics, directories and files."""

import pytest

from kafkacore.storage.names import (
    LOG,
    Kind,
    PartitionDirectory,
    checkpoint_name,
    file_name,
    parse_checkpoint_name,
    parse_file_name,
    parse_partition_directory,
    partition_directory_name,
    topic_name_problem,
)

UNIQUE = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__consumer_offsets"])
def test_valid_topic_names(name):
    assert topic_name_problem(name) is None


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "the empty string is not allowed"),
        (".", "'.' is not allowed"),
        ("..", "'..' is not allowed"),
        ("x" * 250, "is longer than the max allowed length 249"),
        ("a b", "contains one or more characters other than"),
        ("a/b", "contains one or more characters other than"),
        ("é", "contains one or more characters other than"),
        ("a\0", "contains one or more characters other than"),
    ],
)
def test_invalid_topic_names(name, problem):
    assert problem in topic_name_problem(name)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("topic", ["a", "a-1", "a.b-delete", "__cluster_metadata"])
def test_directory_name_is_parsed_to_its_parts(kind, topic):
    name = partition_directory_name(topic, 17, kind, UNIQUE)
    assert parse_partition_directory(name) == PartitionDirectory(topic, 17, kind)


def test_directory_names_equal_kafkas_names():
    assert partition_directory_name("topic", 3) == "topic-3"
    assert partition_directory_name("topic", 3, Kind.DELETE, UNIQUE) == f"topic-3.{UNIQUE}-delete"
    assert partition_directory_name("topic", 3, Kind.FUTURE, UNIQUE) == f"topic-3.{UNIQUE}-future"
    assert partition_directory_name("topic", 3, Kind.STRAY, UNIQUE) == f"topic-3.{UNIQUE}-stray"


@pytest.mark.parametrize("kind", [Kind.DELETE, Kind.STRAY])
def test_long_topic_is_cut_to_the_limit_of_file_systems(kind):
    name = partition_directory_name("x" * 249, 12345, kind, UNIQUE)
    assert len(name) == 255
    assert parse_partition_directory(name).partition == 12345


@pytest.mark.parametrize(
    "name",
    ["", "topic", "topic-", "-1", "topic-x", "topic--1x", "topic-1-delete", "topic-1.-delete", "t-2147483648", "t-٣"],
)
def test_name_of_no_partition_directory_is_not_parsed(name):
    assert parse_partition_directory(name) is None


def test_file_names():
    assert file_name(0, LOG) == "00000000000000000000.log"
    assert file_name(2**63 - 1, ".txnindex") == "09223372036854775807.txnindex"
    assert parse_file_name("00000000000000000042.log.deleted") == (42, ".log.deleted")


@pytest.mark.parametrize(
    "name", ["", "42.log", "0000000000000000004x.log", "00000000000000000042", "99999999999999999999.log"]
)
def test_name_of_no_segment_file_is_not_parsed(name):
    assert parse_file_name(name) is None


def test_checkpoint_names():
    assert checkpoint_name(0, 0) == "00000000000000000000-0000000000.checkpoint"
    assert parse_checkpoint_name(checkpoint_name(123, 4)) == (123, 4)
    for other in (
        "x.checkpoint",
        checkpoint_name(1, 2) + ".part",
        checkpoint_name(1, 2) + ".deleted",
        "bootstrap.checkpoint",
    ):
        assert parse_checkpoint_name(other) is None
