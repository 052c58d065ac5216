"""Options of the data source `kafkacore`: those of Spark's Kafka connector, and a few more. They are checked before any
connection is made.

Names are not case-sensitive, because Spark does not preserve their case. An invalid value raises an error that names
the option and the allowed values. Because the connector accepts unknown options, an unknown option causes only a
warning, which suggests the most similar known name.
"""

import difflib
import os
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypedDict

from kafkacore.spark.client_keys import treatment
from kafkacore.spark.errors import OptionError
from kafkacore.spark.positions import (
    EARLIEST,
    LATEST,
    MAX_OFFSET,
    Positions,
    TopicPartition,
    parse_assignment,
    parse_positions,
    topic_name,
)

STRATEGIES: Final = ("subscribe", "subscribePattern", "assign")
READ_OPTIONS: Final = (
    *STRATEGIES, "startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp",
    "startingTimestamp", "endingTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "minRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "includeHeaders", "groupIdPrefix",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs", "columns", "pushFilters",
)  # fmt: skip
WRITE_OPTIONS: Final = ("topic", "includeHeaders", "exactlyOnce", "stagingLocation", "markerTopic")
# A task in Python takes about as much time as reading this number of small records.
STREAM_MIN_RECORDS: Final = 10_000
# Spark or the session adds these options. They have no meaning for a source.
_OF_SPARK: Final = ("path", "checkpointLocation", "queryName", "outputMode")
_DURATION: Final = re.compile(
    r"\s*([0-9]{1,12})\s*(ms|msec|millis|milliseconds?|s|sec|seconds?|m|min|minutes?|h|hours?|d|days?)?\s*"
)
_MILLIS: Final = {"m": 60_000, "s": 1000, "h": 3_600_000, "d": 86_400_000}


@dataclass(frozen=True)
class Bound:
    """One end of the range to read. `kind` decides which of the other fields applies."""

    kind: Literal["earliest", "latest", "offsets", "timestamp", "timestamps"]
    offsets: Positions = field(default_factory=dict)  # offsets, or milliseconds if kind is `timestamps`
    timestamp_ms: int = 0
    option: str = ""


@dataclass(frozen=True)
class SourceOptions:
    """The options of `spark.read` and `spark.readStream`."""

    streaming: bool
    kafka: Mapping[str, str] = field(repr=False)  # keys of Kafka's client without `kafka.`; may contain passwords
    start: Bound
    end: Bound
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: frozenset[TopicPartition] = frozenset()
    unmatched_start_is_latest: bool = False
    fail_on_data_loss: bool = True
    min_partitions: int | None = None
    max_records_per_partition: int | None = None
    min_records_per_partition: int = 1
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    include_headers: bool = False
    columns: tuple[str, ...] = ()
    push_filters: bool = False
    offset_retries: int = 3
    offset_retry_interval_ms: int = 10
    poll_timeout_ms: int = 120_000


@dataclass(frozen=True)
class SinkOptions:
    """The options of `df.write` and `df.writeStream`."""

    kafka: Mapping[str, str] = field(repr=False)
    topic: str | None = None
    exactly_once: bool = False
    staging: str | None = None
    marker_topic: str = "__kafkacore_spark_markers"


class _Strategy(TypedDict, total=False):
    topics: tuple[str, ...]
    pattern: str
    assigned: frozenset[TopicPartition]


class Given:
    """The options of one query. Stores which names were read, so that the rest can be reported as unknown."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self.values = {name.lower(): (name, str(value)) for name, value in options.items()}

    def has(self, name: str) -> bool:
        return name.lower() in self.values

    def text(self, name: str, default: str | None = None) -> str | None:
        found = self.values.get(name.lower())
        return default if found is None else found[1].strip()

    def boolean(self, name: str, *, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            raise OptionError(f"option {name} must be true or false, but it is {text!r}")
        return text.lower() == "true"

    def number(self, name: str, *, least: int = 1, most: int = MAX_OFFSET) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", text) or not least <= int(text) <= most:
            raise OptionError(f"option {name} must be a whole number from {least} to {most}, but it is {text!r}")
        return int(text)

    def duration_ms(self, name: str, default: int) -> int:
        text = self.text(name)
        if text is None:
            return default
        match = _DURATION.fullmatch(text.lower())
        if not match:
            raise OptionError(f"option {name} must be a time such as 15m, 30s or 500ms, but it is {text!r}")
        unit = match[2] or "ms"
        return int(match[1]) * (1 if unit.startswith(("ms", "mil")) else _MILLIS[unit[0]])


def source_options(options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Parses and checks the options of a read.

    :raises OptionError: an option is wrong; the text names the option and says what is allowed
    """
    given = Given(options)
    kafka = _kafka_keys(given, writes=False)
    _warn_of_unknown(given, READ_OPTIONS)
    strategy = _strategy(given)
    if streaming:
        for name in ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"):
            if given.has(name):
                raise OptionError(f"option {name} is for batch reads; a stream has no end")
    else:
        for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"):
            if given.has(name):
                _warn(f"option {name} is for streams and has no effect on a batch read")
    least, most = given.number("minOffsetsPerTrigger"), given.number("maxOffsetsPerTrigger")
    if least is not None and most is not None and least > most:
        raise OptionError(f"option minOffsetsPerTrigger ({least}) must not exceed maxOffsetsPerTrigger ({most})")
    if given.has("groupIdPrefix"):
        _warn("option groupIdPrefix has no effect: a read joins no consumer group")
    unmatched = _choice(given, "startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return SourceOptions(
        streaming=streaming,
        kafka=kafka,
        start=_start(given, streaming=streaming),
        end=_end(given),
        **strategy,
        unmatched_start_is_latest=unmatched == "latest",
        fail_on_data_loss=given.boolean("failOnDataLoss", default=True),
        min_partitions=given.number("minPartitions", most=1_000_000),
        max_records_per_partition=given.number("maxRecordsPerPartition"),
        min_records_per_partition=_least_records(given, streaming=streaming),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=given.duration_ms("maxTriggerDelay", 15 * 60_000),
        include_headers=given.boolean("includeHeaders", default=False),
        columns=tuple(name.strip() for name in (given.text("columns") or "").split(",") if name.strip()),
        push_filters=given.boolean("pushFilters", default=False),
        offset_retries=_or(given.number("fetchOffset.numRetries", least=0, most=1000), 3),
        offset_retry_interval_ms=_or(given.number("fetchOffset.retryIntervalMs", least=0, most=3_600_000), 10),
        poll_timeout_ms=_or(given.number("kafkaConsumer.pollTimeoutMs", most=86_400_000), 120_000),
    )


def _least_records(given: Given, *, streaming: bool) -> int:
    """Returns the number of records below which ranges of several partitions share a task."""
    least = given.number("minRecordsPerPartition")
    split_by = next((name for name in ("minPartitions", "maxRecordsPerPartition") if given.has(name)), None)
    if least is None:
        return STREAM_MIN_RECORDS if streaming and split_by is None else 1
    if split_by is not None:
        raise OptionError(f"option minRecordsPerPartition joins what {split_by} splits: give only one of them")
    return least


def sink_options(options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Parses and checks the options of a write.

    :raises OptionError: an option is wrong; the text names the option and says what is allowed
    """
    given = Given(options)
    kafka = _kafka_keys(given, writes=True)
    _warn_of_unknown(given, WRITE_OPTIONS)
    topic = given.text("topic")
    exactly_once = given.boolean("exactlyOnce", default=False)
    if exactly_once and not streaming:
        raise OptionError(
            "option exactlyOnce is for streams: a batch write has no id by which the sink could recognise a rerun"
        )
    staging = given.text("stagingLocation")
    if exactly_once and not staging:
        raise OptionError("option exactlyOnce needs stagingLocation, a directory that the driver and all tasks share")
    if exactly_once and staging and not os.path.isabs(staging):
        raise OptionError(
            "option stagingLocation must be the absolute path of a directory that the driver and all tasks share,"
            f" without a scheme such as file:, but it is {staging!r}"
        )
    if exactly_once and kafka.get("acks", "all") not in {"all", "-1"}:
        raise OptionError(f"option kafka.acks must be all with exactlyOnce, but it is {kafka['acks']!r}")
    return SinkOptions(
        kafka=kafka,
        topic=None if topic is None else topic_name("topic", topic),
        exactly_once=exactly_once,
        staging=staging,
        marker_topic=topic_name("markerTopic", given.text("markerTopic", SinkOptions.marker_topic)),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _warn(text: str) -> None:
    # A warning goes to stderr, which Spark copies into its log.
    warnings.warn(f"kafkacore: {text}", RuntimeWarning, stacklevel=4)


def _choice(given: Given, name: str, allowed: tuple[str, ...], default: str) -> str:
    text = (given.text(name) or default).lower()
    if text not in allowed:
        raise OptionError(f"option {name} must be {' or '.join(allowed)}, but it is {text!r}")
    return text


def _kafka_keys(given: Given, *, writes: bool) -> dict[str, str]:
    found = {}
    for name, (written, value) in given.values.items():
        if not name.startswith("kafka."):
            continue
        key = name.removeprefix("kafka.")
        what, why = treatment(key, writes=writes)
        if what == "refused":
            raise OptionError(f"option {written} is refused: {why}")
        if what == "ignored":
            _warn(f"option {written} is ignored: {why}")
        else:
            found[key] = value.strip()
    if not found.get("bootstrap.servers"):
        raise OptionError("option kafka.bootstrap.servers is missing: give host:port of brokers, separated by commas")
    return found


def _warn_of_unknown(given: Given, known: tuple[str, ...]) -> None:
    both = {one.lower(): one for one in (*READ_OPTIONS, *WRITE_OPTIONS, *_OF_SPARK)}
    for name, (written, _) in given.values.items():
        if name in both or name.startswith("kafka."):
            continue
        near = difflib.get_close_matches(name, [one.lower() for one in known], n=1)
        _warn(f"option {written} is unknown and has no effect" + (f"; did you mean {both[near[0]]}?" if near else ""))


def _strategy(given: Given) -> _Strategy:
    chosen = [name for name in STRATEGIES if given.has(name)]
    if len(chosen) != 1:
        found = f"and {' and '.join(chosen)} are given" if chosen else "and none is given"
        raise OptionError(
            f"exactly one of the options {', '.join(STRATEGIES)} must be given to name what to read, {found}"
        )
    text = given.text(chosen[0]) or ""
    if chosen == ["subscribe"]:
        topics = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
        if not topics:
            raise OptionError(f"option subscribe must name topics, separated by commas, but it is {text!r}")
        return {"topics": tuple(topic_name("subscribe", one) for one in topics)}
    if chosen == ["subscribePattern"]:
        if not text:
            raise OptionError("option subscribePattern must be a regular expression, but it is empty")
        compile_pattern(text)
        return {"pattern": text}
    return {"assigned": parse_assignment("assign", text)}


def compile_pattern(text: str) -> re.Pattern[str]:
    """Compiles a Java pattern as a Python pattern. For the usual patterns of topic names, both mean the same."""
    try:
        return re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionError(
            f"option subscribePattern is not a regular expression that Python can read: {error}: {text!r}"
        ) from error


def _start(given: Given, *, streaming: bool) -> Bound:
    bound = _by_time(given, "starting") or _by_offsets(given, "startingOffsets", "latest" if streaming else "earliest")
    if not streaming:
        if bound.kind == "latest":
            raise OptionError("option startingOffsets of a batch read must be earliest or JSON, not latest")
        _refuse_in(bound, LATEST, "latest (-1)")
    return bound


def _end(given: Given) -> Bound:
    bound = _by_time(given, "ending") or _by_offsets(given, "endingOffsets", "latest")
    if bound.kind == "earliest":
        raise OptionError("option endingOffsets must be latest or JSON, not earliest")
    _refuse_in(bound, EARLIEST, "earliest (-2)")
    return bound


def _refuse_in(bound: Bound, refused: int, word: str) -> None:
    for (topic, partition), offset in bound.offsets.items():
        if bound.kind == "offsets" and offset == refused:
            raise OptionError(f"option {bound.option} must not be {word} for {topic}-{partition}")


def _by_time(given: Given, prefix: str) -> Bound | None:
    """Returns the bound by time, if an option sets one. `startingTimestamp` has precedence over
    `startingOffsetsByTimestamp`, which has precedence over `startingOffsets`."""
    name = f"{prefix}Timestamp"
    if given.has(name):
        return Bound("timestamp", timestamp_ms=_or(given.number(name, least=0), 0), option=name)
    name = f"{prefix}OffsetsByTimestamp"
    if given.has(name):
        return Bound(
            "timestamps", parse_positions(name, given.text(name) or "", least=0, what="time in ms"), option=name
        )
    return None


def _by_offsets(given: Given, name: str, default: Literal["earliest", "latest"]) -> Bound:
    text = given.text(name) or default
    if text.lower() == "earliest":
        return Bound("earliest", option=name)
    if text.lower() == "latest":
        return Bound("latest", option=name)
    if not text.startswith("{"):
        raise OptionError(f"option {name} must be earliest, latest or JSON, but it is {text!r}")
    return Bound("offsets", parse_positions(name, text, least=EARLIEST, what="offset, -2 or -1"), option=name)
