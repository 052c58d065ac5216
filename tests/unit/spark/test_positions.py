"""JSON with offsets: assignments, positions in options, and the content of a checkpoint."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkacore.spark.errors import CheckpointError, OptionError
from kafkacore.spark.positions import (
    TOPIC_IDS,
    from_json_object,
    names,
    parse_assignment,
    parse_positions,
    to_json_object,
)

TOPICS = st.from_regex(r"[a-zA-Z0-9_-]{1,20}", fullmatch=True)
POSITIONS = st.dictionaries(st.tuples(TOPICS, st.integers(0, 2**31 - 1)), st.integers(0, 2**63 - 1), max_size=20)


def offsets(text):
    return parse_positions("startingOffsets", text, least=-2, what="offset")


def test_positions_hold_every_number_when_the_json_names_several_topics():
    assert offsets('{"a":{"0":23,"1":-2},"b":{"10":-1}}') == {("a", 0): 23, ("a", 1): -2, ("b", 10): -1}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "must be JSON of the form"),
        ('{"a":5}', "'a' has no object"),
        ('{"a":{"0":"5"}}', "'5' of a-0 is no offset"),
        ('{"a":{"0":true}}', "True of a-0 is no offset"),
        ('{"a":{"0":1.5}}', "1.5 of a-0"),
        ('{"a":{"0":-3}}', "-3 of a-0"),
        ('{"a":{"0":9223372036854775808}}', "9223372036854775808 of a-0"),
        ('{"a":{"-1":5}}', "'-1' of 'a' is no partition"),
        ('{"a":{"2147483648":5}}', "is no partition"),
        ('{"a":{"x":5}}', "'x' of 'a' is no partition"),
        ('{"a/b":{"0":5}}', "'a/b', which is no topic name"),
        ('{"..":{"0":5}}', "which is no topic name"),
        ('{"a":{"0":5,"0":6}}', "names '0' twice"),
        ('{"a":{"0":5},"a":{"1":6}}', "names 'a' twice"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_error_names_the_option_when_the_json_of_positions_is_wrong(text, complaint):
    with pytest.raises(OptionError) as refused:
        offsets(text)
    assert "startingOffsets" in str(refused.value)
    assert complaint in str(refused.value)


def test_assignment_holds_each_partition_once():
    assert parse_assignment("assign", '{"a":[0,1,1],"b":[7]}') == {("a", 0), ("a", 1), ("b", 7)}


@pytest.mark.parametrize(
    "text", ["a", "{}", '{"a":[]}', '{"a":0}', '{"a":["0"]}', '{"a":[-1]}', '{"a":[true]}', '{"":[0]}']
)
def test_error_names_the_option_when_the_assignment_is_wrong(text):
    with pytest.raises(OptionError, match="assign"):
        parse_assignment("assign", text)


@given(POSITIONS, st.dictionaries(TOPICS, st.text(min_size=1, max_size=22), min_size=1, max_size=5))
def test_a_checkpoint_gives_back_what_was_written(positions, ids):
    assert from_json_object(to_json_object(positions, ids)) == (positions, ids)


@given(POSITIONS)
def test_the_text_of_a_checkpoint_does_not_depend_on_the_order_of_partitions(positions):
    backwards = dict(reversed(positions.items()))
    assert str(to_json_object(positions)) == str(to_json_object(backwards))


def test_a_checkpoint_of_the_connector_is_read_without_topic_ids():
    assert from_json_object({"t": {"0": 1130, "1": 0}}) == ({("t", 0): 1130, ("t", 1): 0}, {})


@pytest.mark.parametrize(
    "foreign",
    [
        5,
        None,
        {"logOffset": 3},
        {"t": {"0": -1}},
        {"t": {"zero": 1}},
        {"a b": {"0": 1}},
        {"t": {"0": "1"}},
        {"t": {"0": 2**63}},
    ],
)
def test_a_checkpoint_of_another_source_is_refused(foreign):
    with pytest.raises(CheckpointError, match="another checkpointLocation"):
        from_json_object(foreign)


def test_names_are_cut_when_there_are_many():
    assert names({("b", 1), ("a", 0)}) == "a-0, b-1"
    assert names([("a", number) for number in range(25)]).endswith("a-19 and 5 more")
    assert TOPIC_IDS not in names({("a", 0)})
