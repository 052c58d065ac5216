"""Kafka's own tools for groups, from the releases 4.3 and 3.9: kafka-consumer-groups with all its commands, and
consumers.
"""

import json
import re

import pytest

from group_members import ConfluentMember, poll_until

PARTITIONS = 2
RECORDS = 20


@pytest.fixture
def topic(tools, broker, topic_name):
    """Makes a topic with RECORDS records in each partition."""
    server = ["--bootstrap-server", broker.bootstrap]
    tools.run("kafka-topics", *server, "--create", "--topic", topic_name, "--partitions", PARTITIONS)
    tools.run(
        "kafka-producer-perf-test", "--topic", topic_name, "--num-records", RECORDS * PARTITIONS, "--record-size", 10,
        "--throughput", -1, "--producer-props", f"bootstrap.servers={broker.bootstrap}",
        "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner", "batch.size=0",
    )  # fmt: skip
    return topic_name


@pytest.fixture
def groups(tools, broker):
    """Returns a function that runs kafka-consumer-groups. The function returns the output as rows of words."""

    def run(*arguments):
        shown = tools.run("kafka-consumer-groups", "--bootstrap-server", broker.bootstrap, *arguments)
        return [line.split() for line in shown.lines if line.strip()]

    return run


@pytest.fixture
def consumed(tools, broker, topic):
    """Makes a group that has the topic's name. The group has read the whole topic, and has no members."""
    shown = tools.run(
        "kafka-verifiable-consumer", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--group-id", topic,
        "--reset-policy", "earliest", "--max-messages", RECORDS * PARTITIONS,
    )  # fmt: skip
    events = [json.loads(line) for line in shown.lines if line.startswith("{")]
    names = [event["name"] for event in events]
    assert {"startup_complete", "partitions_assigned", "records_consumed", "offsets_committed"} <= set(names)
    assert all(event["success"] for event in events if event["name"] == "offsets_committed")
    assert names[-1] == "shutdown_complete"
    return topic


def by_header(rows, key, value):
    """Returns a dict from one column of a table to another, with the columns found by the names in the header."""
    at = next(index for index, row in enumerate(rows) if key in row)
    header = [word for word in rows[at] if re.fullmatch("[#A-Z-]{2,}", word)]
    table = rows[at + 1 :]
    if len(rows[at]) > len(header):  # 3.9 prints its planned resets without line ends
        table = [rows[at][start : start + len(header)] for start in range(len(header), len(rows[at]), len(header))]
    return {row[header.index(key)]: row[header.index(value)] for row in table if len(row) >= len(header)}


def test_consumer_groups_lists_a_group_and_describes_its_offsets(groups, consumed):
    assert [consumed] in groups("--list")
    assert by_header(groups("--list", "--state"), "GROUP", "STATE")[consumed] == "Empty"
    assert [consumed] not in [row[:1] for row in groups("--list", "--state", "Stable")]
    shown = groups("--describe", "--group", consumed, "--offsets")
    assert by_header(shown, "PARTITION", "CURRENT-OFFSET") == {"0": str(RECORDS), "1": str(RECORDS)}
    assert by_header(shown, "PARTITION", "LAG") == {"0": "0", "1": "0"}
    of_all = [row for row in groups("--describe", "--all-groups") if "PARTITION" in row or consumed in row]
    mine = [of_all[0], *(row for row in of_all if consumed in row)]
    assert by_header(mine, "PARTITION", "LAG") == {"0": "0", "1": "0"}


def test_consumer_groups_describes_members_and_state_of_an_active_group(tools, groups, broker, topic):
    member = ConfluentMember(broker, topic, topic)
    try:
        poll_until([member], lambda: len(member.partitions()) == PARTITIONS, "the member has its partitions")
        members = groups("--describe", "--group", topic, "--members", "--verbose")
        assert by_header(members, "GROUP", "#PARTITIONS") == {topic: str(PARTITIONS)}
        assert by_header(members, "GROUP", "CLIENT-ID") == {topic: "rdkafka"}
        assert "/127.0.0.1" in members[-1]
        of_all = [row for row in groups("--describe", "--all-groups", "--members") if topic in row]
        assert [row[-1] for row in of_all] == [str(PARTITIONS)]
        [state] = [row for row in groups("--describe", "--group", topic, "--state") if topic in row]
        assert {broker.bootstrap, "range", "Stable"} <= set(state)
        refused = tools.attempt(
            "kafka-consumer-groups", "--bootstrap-server", broker.bootstrap, "--delete", "--group", topic
        )
        assert "GroupNotEmptyException" in refused.out + refused.err
    finally:
        member.close()


def test_consumer_groups_resets_and_deletes_offsets_and_the_group(groups, consumed):
    reset = ["--reset-offsets", "--group", consumed, "--topic", consumed]
    wanted = by_header(groups(*reset, "--to-offset", 7, "--dry-run"), "PARTITION", "NEW-OFFSET")
    assert wanted == {"0": "7", "1": "7"}
    offsets = ["--describe", "--group", consumed, "--offsets"]
    assert by_header(groups(*offsets), "PARTITION", "CURRENT-OFFSET") == {"0": str(RECORDS), "1": str(RECORDS)}
    groups(*reset, "--to-earliest", "--execute")
    assert by_header(groups(*offsets), "PARTITION", "CURRENT-OFFSET") == {"0": "0", "1": "0"}
    groups(*reset[:-1], f"{consumed}:1", "--shift-by", 5, "--execute")
    assert by_header(groups(*offsets), "PARTITION", "LAG") == {"0": str(RECORDS), "1": str(RECORDS - 5)}
    deleted = groups("--delete-offsets", "--group", consumed, "--topic", f"{consumed}:0")
    assert by_header(deleted, "PARTITION", "STATUS") == {"0": "Successful"}
    assert by_header(groups(*offsets), "PARTITION", "CURRENT-OFFSET") == {"1": "5"}
    said = groups("--delete", "--group", consumed)
    assert "successful" in " ".join(said[0])
    assert [consumed] not in groups("--list")


def test_performance_consumer_reads_every_record(tools, broker, topic):
    shown = tools.run(
        "kafka-consumer-perf-test", "--bootstrap-server", broker.bootstrap, "--topic", topic, "--messages",
        RECORDS * PARTITIONS, "--group", topic, "--timeout", 20_000,
    )  # fmt: skip
    figures = re.split(r",\s*", shown.lines[-1])
    assert int(float(figures[4])) == RECORDS * PARTITIONS


def test_consumer_groups_resets_offsets_in_every_form(groups, tools, broker, consumed, tmp_path):
    reset = ["--reset-offsets", "--group", consumed, "--topic", consumed]

    def wanted(*form):
        shown = by_header(groups(*reset, *form, "--dry-run"), "PARTITION", "NEW-OFFSET")
        assert set(shown) == {"0", "1"}
        return int(shown["0"]), int(shown["1"])

    end = (RECORDS, RECORDS)
    assert wanted("--to-earliest") == (0, 0)
    assert wanted("--to-latest") == end
    assert wanted("--to-current") == end
    assert wanted("--to-offset", 3 * RECORDS) == end  # the tool limits the new offset to the existing offsets
    assert wanted("--shift-by", -3) == (RECORDS - 3, RECORDS - 3)
    assert wanted("--by-duration", "P1D") == (0, 0)
    assert wanted("--to-datetime", "2000-01-01T00:00:00.000") == (0, 0)
    plan = tmp_path / "plan.csv"
    plan.write_text(f"{consumed},0,4\n{consumed},1,6\n")
    assert wanted("--from-file", plan) == (4, 6)
    exported = tools.run(
        "kafka-consumer-groups", "--bootstrap-server", broker.bootstrap, *reset, "--shift-by", -1, "--export",
        "--dry-run",
    )  # fmt: skip
    assert {f'"{consumed}",{index},{RECORDS - 1}' for index in (0, 1)} <= set(exported.lines)
    everywhere = ["--reset-offsets", "--group", consumed, "--all-topics", "--to-offset", 2, "--execute"]
    assert by_header(groups(*everywhere), "PARTITION", "NEW-OFFSET") == {"0": "2", "1": "2"}
    described = groups("--describe", "--group", consumed, "--offsets")
    assert by_header(described, "PARTITION", "CURRENT-OFFSET") == {"0": "2", "1": "2"}


def test_consumer_groups_describes_all_groups_and_lists_them_by_type(groups, tools, consumed):
    [state] = [row for row in groups("--describe", "--all-groups", "--state") if consumed in row]
    assert "Empty" in state
    if tools.name == "apache-3.9":
        return  # the --list option of this release has no types
    assert by_header(groups("--list", "--type"), "GROUP", "TYPE")[consumed] == "Classic"
    assert [consumed] not in [row[:1] for row in groups("--list", "--type", "consumer")]
