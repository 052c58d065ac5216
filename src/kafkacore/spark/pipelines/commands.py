"""The pipelines as commands. Each command reads log directories or request logs, and writes Parquet tables and one HTML
page."""

import json
import os
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import concat_ws, regexp_extract
from pyspark.sql.functions import max as max_of

from kafkacore.spark.pipelines import (
    controller_report,
    lag_history,
    placement,
    placement_plan,
    plane_report,
    replica_audit,
)
from kafkacore.spark.pipelines.report import Report

FOUND: Final = 3  # the exit code of an audit with findings
_FORMAT: Final = "kafkacore-log"
_CONNECT_S: Final = 120


def session(name: str, settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Returns the running session, or starts a local session on all cores. With SPARK_REMOTE or under spark-submit, the
    session is theirs."""
    builder = SparkSession.builder.appName(f"kafkacore {name}").config("spark.sql.session.timeZone", "UTC")
    for key, value in settings.items():
        builder = builder.config(key, value)
    if not os.environ.get("SPARK_REMOTE") and "SPARK_ENV_LOADED" not in os.environ:  # spark-submit sets the latter
        # The default of 200 partitions is meant for clusters. In a local session, each partition would be a task that
        # waits for a core.
        builder = builder.config("spark.sql.shuffle.partitions", str(2 * (os.cpu_count() or 1)))
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
        # By default a worker must connect within 15 seconds, but a busy machine may need more time to start Python.
        builder = builder.config("spark.python.authenticate.socketTimeout", f"{_CONNECT_S}s")
        os.environ.setdefault("SPARK_AUTH_SOCKET_TIMEOUT", str(_CONNECT_S))
        # Without this, Spark warns if the host name resolves to a loopback address.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return builder.getOrCreate()


def run(arguments: Namespace) -> int:
    """Runs the pipeline that `arguments.pipeline` names, and returns the exit code."""
    os.makedirs(arguments.output, exist_ok=True)
    page = os.path.join(arguments.output, "report.html")
    report = Report(arguments.pipeline.replace("-", " ").capitalize())
    code = report_on(session(arguments.pipeline), arguments, report)
    report.write(page)
    print(f"{page}: the report")
    return code


def report_on(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    """Writes the tables of `arguments.pipeline` into the directory `arguments.output`, and adds their content to the
    report. Returns the exit code."""
    return PIPELINES[arguments.pipeline](spark, arguments, report)


def _table(spark: SparkSession, paths: list[str], name: str) -> DataFrame:
    reader = spark.read.format(_FORMAT).option("path", ",".join(paths)).option("table", name)
    return reader.option("onCorrupt", "rows").load()


def _keep(arguments: Namespace, tables: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Writes the tables as Parquet files. Returns tables that read these files, so that Spark computes each table only
    once."""
    kept = {}
    for name, rows in tables.items():
        path = os.path.join(arguments.output, name)
        rows.write.mode("overwrite").parquet(path)
        kept[name] = rows.sparkSession.read.parquet(path)
    return kept


def _replica_audit(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    isr = None
    if arguments.metadata:
        metadata = _table(spark, arguments.metadata, "metadata").cache()
        changes = controller_report.partition_changes(metadata)
        isr = controller_report.last_isr(changes, controller_report.topic_names(metadata))
    found = replica_audit.audit_directories(spark, arguments.path, compacted=arguments.compacted, isr=isr)
    kept = _keep(arguments, {"findings": found})["findings"]
    report.text(f"Directories: {', '.join(arguments.path)}.")
    if isr is None:
        report.text(
            "No metadata log was given, so a replica that ends early counts only against its own high watermark."
        )
    count = kept.count()
    report.text("The replicas agree." if not count else f"{count} findings.", "bad" if count else "good")
    if count:
        report.table("Findings", kept.orderBy("topic", "partition", "offset"))
    print("the replicas agree" if not count else f"{count} findings")
    return FOUND if count else 0


def _controller_report(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    metadata = _table(spark, arguments.path, "metadata").cache()
    # Five of the tables are computed from these changes.
    changes = controller_report.partition_changes(metadata).cache()
    names = controller_report.topic_names(metadata)
    by_topic = {
        "leader-elections": controller_report.leader_elections(changes),
        "isr-changes": controller_report.isr_changes(changes),
        "leaderless": controller_report.leaderless_times(changes),
        "reassignments": controller_report.reassignments(changes),
        "flapping": controller_report.flapping(changes),
    }
    named = {name: names.join(rows, "topicId", "right").drop("topicId") for name, rows in by_topic.items()}
    kept = _keep(arguments, {
        "controllers": controller_report.controller_elections(metadata),
        "brokers": controller_report.broker_events(metadata),
        "features": controller_report.feature_changes(metadata),
        **named,
    })  # fmt: skip
    marks = {title: _times(kept[name]) for title, name in _CONTROLLER_PAGE if name in _MARKED}
    if any(marks.values()):
        report.plot("When it happened", lambda axes: _marks(axes, marks), size=(9.0, 2.2))
    for title, name in _CONTROLLER_PAGE:
        rows = kept[name]
        report.table(title, rows.orderBy("timestamp" if "timestamp" in rows.columns else rows.columns[2]))
    return 0


_CONTROLLER_PAGE: Final = (
    ("Active controllers", "controllers"), ("Brokers", "brokers"), ("Elections of leaders", "leader-elections"),
    ("Partitions without a leader", "leaderless"), ("Changes of ISRs", "isr-changes"),
    ("Partitions that flap", "flapping"), ("Reassignments", "reassignments"), ("Feature levels", "features"),
)  # fmt: skip


_MARKED: Final = frozenset({"controllers", "brokers", "leader-elections", "isr-changes"})


def _times(rows: DataFrame) -> list[object]:
    return [row["timestamp"] for row in rows.select("timestamp").limit(_MOST_POINTS).collect()]


def _marks(axes: Any, marks: dict[str, list[object]]) -> None:
    """Draws a row of marks for each kind of event. The first kind is at the top."""
    for height, (name, times) in enumerate(reversed(marks.items())):
        axes.plot(times, [height] * len(times), linestyle="none", marker="|", markersize=12, label=name)
    axes.set_yticks(range(len(marks)), list(reversed(marks)))
    axes.set_ylim(-0.5, len(marks) - 0.5)


def _placement_plan(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    now, changed, racks = placement_plan.plan_directories(
        spark, arguments.path, drained=arguments.drain, hours=arguments.rate_hours
    )
    before, after = placement.load(now, [], racks), placement.load(now, changed, racks)
    plan_path = os.path.join(arguments.output, "reassignment.json")
    with open(plan_path, "w", encoding="utf-8") as file:
        json.dump(placement.reassignment_json(changed), file)
    columns = (
        "broker int, rack string, bytesBefore bigint, bytesAfter bigint, bytesPerSecondBefore double, "
        "bytesPerSecondAfter double, leadersBefore int, leadersAfter int"
    )
    rows = [
        (
            each, racks[each], before.bytes[each], after.bytes[each], before.rates[each], after.rates[each],
            before.leaders[each], after.leaders[each],
        )
        for each in sorted(racks)
    ]  # fmt: skip
    kept = _keep(arguments, {"brokers": spark.createDataFrame(rows, columns)})["brokers"]
    report.text(f"{len(changed)} of {len(now)} partitions change, and {after.moved} bytes move.")
    report.plot("Bytes of each broker", lambda axes: _bars(axes, rows, 2, "bytes"))
    report.plot("Bytes appended per second to each broker", lambda axes: _bars(axes, rows, 4, "bytes per second"))
    report.table("Brokers", kept.orderBy("broker"))
    print(f"{plan_path}: the plan, for kafka-reassign-partitions --reassignment-json-file")
    return 0


def _bars(axes: Any, rows: Sequence[tuple[Any, ...]], column: int, unit: str) -> None:
    """Draws two bars for each broker: the value before the plan, in `column`, and the value after it, in the next
    column."""
    for shift, at_column, label in ((-0.2, column, "now"), (0.2, column + 1, "planned")):
        axes.bar([at + shift for at in range(len(rows))], [row[at_column] for row in rows], width=0.4, label=label)
    axes.set_xticks(range(len(rows)), [f"broker {row[0]}" for row in rows])
    axes.set_ylabel(unit)
    # Place the legend outside the plot, where the bars do not hide it.
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))


def _lag_history(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    groups = _table(spark, arguments.path, "groups")
    checkpoints = _table(spark, arguments.path, "checkpoints")
    history = lag_history.lag(lag_history.commits(groups), _table(spark, arguments.path, "batches"))
    kept = _keep(arguments, {"lag": history, "complete-since": lag_history.complete_since(groups, checkpoints)})
    report.text("A compacted part of __consumer_offsets contains only the last commits: see the times below.")
    report.table("Complete since", kept["complete-since"].orderBy("partition"))
    largest = kept["lag"].groupBy("group", "topic", "partition").agg(
        max_of("records").alias("records"), max_of("seconds").alias("seconds"),
        max_of("commitTimestamp").alias("lastCommit"),
    )  # fmt: skip
    report.table("Largest lag of each group and partition", largest.orderBy("group", "topic", "partition"))
    series = kept["lag"].groupBy("group", "commitTimestamp").agg({"records": "sum"}).orderBy("commitTimestamp")
    points = series.limit(_MOST_POINTS).collect()
    if points:
        report.plot("Lag in records", lambda axes: _lines(axes, points, "records"))
    return 0


_MOST_POINTS: Final = 20_000


def _lines(axes: object, points: list[tuple[str, object, float]], unit: str) -> None:
    by_group: dict[str, list[tuple[object, float]]] = {}
    for name, at, value in points:
        by_group.setdefault(name, []).append((at, value))
    for name, line in sorted(by_group.items()):
        axes.plot([at for at, _ in line], [value for _, value in line], label=name)  # type: ignore[attr-defined]
    axes.set_ylabel(unit)  # type: ignore[attr-defined]
    axes.legend(frameon=False)  # type: ignore[attr-defined]


def _plane_report(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    entries = plane_report.read_logs(spark, arguments.path).cache()
    kept = _keep(arguments, {
        "sampling": plane_report.sampling(entries),
        "overall": plane_report.overall(entries),
        "minutes": plane_report.percentiles(entries),
        "saturation": plane_report.saturation(entries),
        "separation": plane_report.separation(entries),
    })  # fmt: skip
    report.text(f"Percentiles in milliseconds, in the order {', '.join(map(str, plane_report.QUANTILES))}.")
    report.table("Logs", kept["sampling"].orderBy("log", "plane"))
    report.table("By plane and API", kept["overall"].orderBy("log", "plane", "listener", "api"))
    report.table("By minute", kept["minutes"].orderBy("begin", "log", "plane", "listener", "api"))
    report.table("Does control work wait while clients are busy?", kept["separation"].orderBy("log", "work", "busy"))
    name = concat_ws(" ", regexp_extract("log", "([^/]*/[^/]*)$", 1), "plane")
    series = kept["saturation"].groupBy(name.alias("name"), "begin").agg(max_of("waited").alias("waited"))
    waits = series.orderBy("begin").limit(_MOST_POINTS).collect()
    if waits:
        report.plot("Mean wait for a handler", lambda axes: _lines(axes, waits, "ms"))
    return 0


PIPELINES: Final[dict[str, Callable[[SparkSession, Namespace, Report], int]]] = {
    "replica-audit": _replica_audit,
    "controller-report": _controller_report,
    "placement-plan": _placement_plan,
    "lag-history": _lag_history,
    "plane-report": _plane_report,
}
