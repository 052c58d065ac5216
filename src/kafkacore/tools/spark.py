"""`kafkacore spark PIPELINE`: runs a predefined pipeline over a cluster's files, on a local Spark or on the one that
spark-submit starts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from typing import Final

from kafkacore.tools.numbers import positive_number, whole_number

DESCRIPTION: Final = "Analyse a cluster's files with Spark; writes Parquet tables and one HTML page."
_DIRECTORIES: Final = (
    "a log directory (log.dirs), or the directory of one partition; directories of several brokers can be given"
)


_DEMO: Final = "a query counts lines while a broker is killed, audits prove the counts, and one page shows it"


def add_arguments(parser: ArgumentParser) -> None:
    pipelines = parser.add_subparsers(dest="pipeline", required=True, metavar="PIPELINE", prog="kafkacore spark")
    for name, summary in (
        ("replica-audit", "do the replicas of each partition agree, and where do they differ first?"),
        ("controller-report", "elections, ISR changes, fencings and reassignments in the metadata log"),
        ("placement-plan", "a plan that balances brokers, for kafka-reassign-partitions"),
        ("lag-history", "how far each group was behind at each of its commits"),
        ("plane-report", "times of requests by listener and API, from request logs"),
    ):
        pipeline = pipelines.add_parser(name, help=summary, description=summary)
        what = "a request log" if name == "plane-report" else _DIRECTORIES
        pipeline.add_argument("path", nargs="+", help=what)
        pipeline.add_argument("--output", required=True, help="the directory for the tables and the page")
        if name == "replica-audit":
            pipeline.add_argument(
                "--compacted", nargs="*", default=[], metavar="TOPIC", help="topics that are compacted"
            )
            pipeline.add_argument(
                "--metadata", nargs="*", default=[], metavar="DIR", help="a controller's log directory"
            )
        if name == "placement-plan":
            pipeline.add_argument("--drain", nargs="*", type=int, default=[], metavar="BROKER", help="brokers to empty")
            pipeline.add_argument(
                "--rate-hours", type=positive_number, default=24.0, metavar="N",
                help="count appended bytes per second in the last N hours (default %(default)g)",
            )  # fmt: skip
    demo = pipelines.add_parser("demo", help=_DEMO, description=_DEMO)
    demo.add_argument("--output", metavar="DIR", help="the directory for the tables and the page (default: a new one)")
    demo.add_argument(
        "--seconds",
        type=whole_number(1),
        default=40,
        metavar="N",
        help="how long the producer writes (default %(default)s)",
    )
    demo.add_argument("--keep", action="store_true", help="keep the directories of the nodes, to look at their files")


def run(arguments: Namespace) -> int:
    """Runs the pipeline or the demo. Returns 1 if Java or PySpark is missing or the demo lost something, and 3 if an
    audit has findings."""
    if importlib.util.find_spec("pyspark") is None or importlib.util.find_spec("pyarrow") is None:
        print("kafkacore: PySpark is not installed: pip install kafkacore[spark]", file=sys.stderr)
        return 1
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=os.path.join(home, "bin") if home else None)
    if java is None and not os.environ.get("SPARK_REMOTE"):
        where = f", but JAVA_HOME={home} has no bin/java" if home else ": apt install openjdk-17-jdk-headless"
        print(f"kafkacore: Spark needs Java 17{where}", file=sys.stderr)
        return 1
    # Workers must run the same Python as this process. Otherwise they do not find this package.
    if "PYSPARK_PYTHON" not in os.environ:
        from kafkacore.spark.workers import quick_python  # noqa: PLC0415

        os.environ["PYSPARK_PYTHON"] = quick_python()
    if arguments.pipeline == "demo":
        from kafkacore.tools.demo_spark import run as run_demo  # noqa: PLC0415

        return run_demo(arguments)
    from kafkacore.spark.pipelines.commands import run as run_pipeline  # noqa: PLC0415

    return run_pipeline(arguments)
