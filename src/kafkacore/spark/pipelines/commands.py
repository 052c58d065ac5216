"""The pipelines as commands. Each command reads log directories or request logs, and writes Parquet tables and one HTML
page."""

import json
import os
import re
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, concat_ws, desc, desc_nulls_last, regexp_extract
from pyspark.sql.functions import count as count_of
from pyspark.sql.functions import max as max_of
from pyspark.sql.functions import sum as sum_of

from kafkacore.spark.pipelines import (
    controller_report,
    lag_history,
    placement,
    placement_plan,
    plane_report,
    plots,
    replica_audit,
)
from kafkacore.spark.pipelines.output import OutputError, check_output, check_table
from kafkacore.spark.pipelines.report import Report

FOUND: Final = 3  # the exit code of an audit with findings
_FORMAT: Final = "kafkacore-log"
_CONNECT_S: Final = 120


def session(name: str, settings: Mapping[str, str] = MappingProxyType({})) -> SparkSession:
    """Returns the running session, or starts a local session on all cores. With SPARK_REMOTE or under spark-submit,
    returns the session that these provide."""
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
    """Runs the pipeline that `arguments.pipeline` names, and returns the exit code. If one of kafkacore's own errors
    ended a task, prints the message of this error without Spark's traces."""
    try:
        check_output(arguments.output, _inputs(arguments))
    except OutputError as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    os.makedirs(arguments.output, exist_ok=True)
    page = os.path.join(arguments.output, "report.html")
    report = Report(arguments.pipeline.replace("-", " ").capitalize())
    try:
        code = report_on(session(arguments.pipeline), arguments, report)
    except PySparkException as error:
        if (problem := _mistake(error)) is None:
            raise
        print(f"kafkacore: {problem}", file=sys.stderr)
        return 1
    except (placement.PlanError, replica_audit.AuditError, OutputError) as error:
        print(f"kafkacore: {error}", file=sys.stderr)
        return 1
    report.write(page)
    print(f"{page}: the report")
    return code


def _mistake(error: PySparkException) -> str | None:
    """Returns the message about a mistake that the user can correct. Returns None for another error."""
    ours = re.findall(r"^kafkacore\.[\w.]+: (.+)$", str(error), re.MULTILINE)
    if ours:
        return str(ours[-1])
    missing = re.match(r"\[PATH_NOT_FOUND\] Path does not exist: (?:file:)?(.+?)\. SQLSTATE", str(error))
    return None if missing is None else f"{missing[1]}: No such file or directory"


def report_on(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    """Writes the tables of `arguments.pipeline` into the directory `arguments.output`, and adds their content to the
    report. Returns the exit code."""
    return PIPELINES[arguments.pipeline](spark, arguments, report)


def _inputs(arguments: Namespace) -> list[str]:
    return [*arguments.path, *getattr(arguments, "metadata", ())]


def _table(spark: SparkSession, paths: list[str], name: str) -> DataFrame:
    reader = spark.read.format(_FORMAT).option("path", ",".join(paths)).option("table", name)
    return reader.option("onCorrupt", "rows").load()


def _keep(arguments: Namespace, tables: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Writes the tables as Parquet files. Returns tables that read these files, so that Spark computes each table only
    once."""
    kept = {}
    for name, rows in tables.items():
        path = os.path.join(arguments.output, name)
        check_table(path, _inputs(arguments))
        rows.write.mode("overwrite").parquet(path)
        kept[name] = rows.sparkSession.read.parquet(path)
    return kept


def _replica_audit(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    isr = None
    if arguments.metadata:
        isr = controller_report.last_isr(_table(spark, arguments.metadata, "metadata").cache())
    audit = replica_audit.audit_directories(spark, arguments.path, compacted=arguments.compacted, isr=isr)
    tables = _keep(arguments, {"findings": audit.findings, "replicas": audit.replicas})
    kept, replicas = tables["findings"], tables["replicas"]
    report.text(f"Directories: {', '.join(arguments.path)}.")
    if isr is None:
        report.text(
            "No metadata log was given, so the audit checks the end of a replica only against its own high watermark."
        )
    count = kept.count()
    audited = replicas.count()
    agree = f"The replicas agree. The audit compared {audited} replicas."
    report.text(f"{count} findings in {audited} replicas." if count else agree, "bad" if count else "good")
    if unknown := replicas.where("`end` > 0 and committed = 0").count():
        report.text(
            f"No broker has checkpointed a high watermark for {unknown} replicas with records, so the audit did not"
            " compare them: stop the brokers cleanly, or give the directories of all brokers."
        )
    if count:
        report.table("Findings", kept.orderBy("topic", "partition", "offset"))
    _plot_replicas(report, kept, replicas, audited)
    print("the replicas agree" if not count else f"{count} findings")
    return FOUND if count else 0


def _plot_replicas(report: Report, findings: DataFrame, replicas: DataFrame, count: int) -> None:
    """Plots the offsets of replicas, first those of partitions with findings."""
    bad = findings.groupBy("topic", "partition").agg(count_of("*").alias("bad"))
    order = replicas.join(bad, ["topic", "partition"], "left").orderBy(desc_nulls_last("bad"), *_REPLICA)
    shown = order.limit(_MOST_SPANS).select(*_REPLICA, "start", "end", "committed").collect()
    if not shown:
        return
    places = findings.select(*_REPLICA, "offset", "endOffset").limit(_MOST_POINTS).collect()
    size = (9.0, 1.0 + 0.22 * len(shown))
    report.plot("Offsets of each replica", lambda axes: plots.spans(axes, shown, places), size=size)
    if count > len(shown):
        report.text(f"The plot shows {len(shown)} of {count} replicas, first those of partitions with findings.")


_REPLICA: Final = ("topic", "partition", "broker")
_MOST_SPANS: Final = 60


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
        report.plot("When it happened", lambda axes: plots.marks(axes, marks), size=(9.0, 2.2))
    for title, name in _CONTROLLER_PAGE:
        rows = kept[name]
        if name == "leader-elections":
            rows = rows.select(
                "topic", "partition", "offset", "timestamp", "formerLeader", "leader", "formerIsr", "isr"
            )
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


def _placement_plan(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    now, changed, racks, fenced = placement_plan.plan_directories(
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
            each, racks.get(each), before.bytes[each], after.bytes.get(each, 0), before.rates[each],
            after.rates.get(each, 0.0), before.leaders.get(each, 0), after.leaders.get(each, 0),
        )
        for each in sorted(before.bytes)
    ]  # fmt: skip
    kept = _keep(arguments, {"brokers": spark.createDataFrame(rows, columns)})["brokers"]
    report.text(f"{len(changed)} of {len(now)} partitions change, and {after.moved} bytes move.")
    if fenced:
        report.text(
            f"The plan gives no replicas to brokers {', '.join(map(str, sorted(fenced)))}, which are fenced or in"
            " controlled shutdown, and leaves their replicas where they are. --drain moves the replicas away."
        )
    if unregistered := sorted(before.bytes.keys() - racks.keys()):
        report.text(
            f"The plan moves replicas away from brokers {', '.join(map(str, unregistered))}, which are not registered."
        )
    _plot_change(report, "Bytes of each broker", rows, 2, "bytes")
    _plot_change(report, "Bytes appended per second to each broker", rows, 4, "bytes per second")
    _plot_change(report, "Preferred leaders of each broker", rows, 6, "partitions")
    report.table("Brokers", kept.orderBy("broker"))
    print(f"{plan_path}: the plan, for kafka-reassign-partitions --reassignment-json-file")
    return 0


def _plot_change(report: Report, title: str, rows: Sequence[tuple[Any, ...]], column: int, unit: str) -> None:
    """Plots two values of each broker: the value before the plan, in `column`, and the value after it, in the next
    column."""
    series = {"now": [row[column] for row in rows], "planned": [row[column + 1] for row in rows]}
    names = [f"broker {row[0]}" for row in rows]
    report.plot(title, lambda axes: plots.bars(axes, names, series, unit), size=(9.0, 2.4))


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
        report.plot("Lag in records", lambda axes: plots.lines(axes, points, "records"))
    return 0


_MOST_POINTS: Final = 20_000
_MOST_CURVES: Final = 12  # a plot with more curves is unreadable


def _plane_report(spark: SparkSession, arguments: Namespace, report: Report) -> int:
    entries = plane_report.read_logs(spark, arguments.path).cache()
    kept = _keep(arguments, {
        "sampling": plane_report.sampling(entries),
        "overall": plane_report.overall(entries),
        "minutes": plane_report.percentiles(entries),
        "saturation": plane_report.saturation(entries),
        "separation": plane_report.separation(entries),
        "distribution": plane_report.distribution(entries),
    })  # fmt: skip
    report.text("All times are in milliseconds.")
    report.table("Logs", _with_short_names(kept["sampling"]).orderBy("log", "plane"))
    slowest = kept["overall"].orderBy(desc(col("total")[_P99])).limit(_MOST_RANGES)
    times = [(f"{row['api']}, {row['log']}", row["total"]) for row in _with_short_names(slowest).collect()]
    title = f"Total time of requests at the quantiles {', '.join(map(str, plane_report.QUANTILES))}"
    report.plot(title, lambda axes: plots.ranges(axes, times, "ms"), size=(9.0, 1.0 + 0.22 * len(times)))
    report.table("By plane and API", _quantile_columns(kept["overall"]).orderBy("log", "plane", "listener", "api"))
    minutes = _quantile_columns(kept["minutes"], "begin")
    report.table("By minute", minutes.orderBy("begin", "log", "plane", "listener", "api"))
    _show_waits(report, kept["saturation"], kept["separation"])
    most = _with_short_names(kept["distribution"]).orderBy(desc("requests")).limit(_MOST_CURVES)
    curves = [tuple(row) for row in most.select(concat_ws(" ", "log", "plane", "api").alias("name"), "queue").collect()]
    if curves:
        title = "Distribution of the wait for a handler"
        report.plot(title, lambda axes: plots.curves(axes, sorted(curves), plane_report.SHARES, "ms"))
    return 0


_P99: Final = plane_report.QUANTILES.index(0.99)
_MOST_RANGES: Final = 30


def _with_short_names(rows: DataFrame) -> DataFrame:
    """Shortens the path of a log to the names of its directory and its file."""
    return rows.withColumn("log", regexp_extract("log", "([^/]*/[^/]*)$", 1))


def _quantile_columns(rows: DataFrame, *more: str) -> DataFrame:
    """Returns a column for each quantile of the total time, and for the 99th percentile of each stage."""
    total = [col("total")[at].alias(f"p{100 * quantile:g}") for at, quantile in enumerate(plane_report.QUANTILES)]
    stages = [col(stage)[_P99].alias(f"{stage.removesuffix('TimeMs')} p99") for stage in plane_report.STAGES]
    return _with_short_names(rows).select(*more, "log", "plane", "listener", "api", "requests", *total, *stages)


def _show_waits(report: Report, saturation: DataFrame, separation: DataFrame) -> None:
    """Shows how long requests waited for a handler, and whether control work waited while clients were busy."""
    series = _with_short_names(saturation).groupBy("log", "plane", "begin").agg(max_of("waited").alias("waited"))
    waits = series.select(concat_ws(" ", "log", "plane"), "begin", "waited").orderBy("begin").limit(_MOST_POINTS)
    points = [tuple(row) for row in waits.collect()]
    if points:
        report.plot("Mean wait for a handler", lambda axes: plots.lines(axes, points, "ms"))
    title = "Does control work wait while clients are busy?"
    shown = _with_short_names(separation).select(
        "log", "plane", "work", "busy", "requests", "waited", "late", col("queue")[_P99].alias("queue p99")
    )
    report.table(title, shown.orderBy("log", "work", "busy"))
    mean = sum_of(col("waited") * col("requests")) / sum_of("requests")
    means = {
        (row["plane"], row["work"], row["busy"]): row["mean"]
        for row in separation.groupBy("plane", "work", "busy").agg(mean.alias("mean")).collect()
    }
    groups = sorted({(plane, work) for plane, work, _ in means})
    bars = {
        name: [means.get((*group, busy), 0.0) for group in groups]
        for name, busy in (("clients are not busy", False), ("clients are busy", True))
        if any(key[2] is busy for key in means)
    }
    names = [f"{work} work\nplane {plane}" for plane, work in groups]
    if names:
        report.plot("Mean wait of each kind of work", lambda axes: plots.bars(axes, names, bars, "ms"))


PIPELINES: Final[dict[str, Callable[[SparkSession, Namespace, Report], int]]] = {
    "replica-audit": _replica_audit,
    "controller-report": _controller_report,
    "placement-plan": _placement_plan,
    "lag-history": _lag_history,
    "plane-report": _plane_report,
}
