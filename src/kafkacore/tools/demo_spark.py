"""`kafkacore spark demo`: Spark counts lines while a producer writes them and the demo kills a broker. The demo then
proves that no line was lost. After that, pipelines analyse the directories of the brokers and controllers. One HTML
page shows all results."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from kafkacore._fast.base.uuid import Uuid
from kafkacore.runtime.ports import free_ports
from kafkacore.spark import demo
from kafkacore.spark.demo import Batch, Counting, Event, ExactlyOnce, Proof
from kafkacore.spark.errors import UnsupportedSparkError
from kafkacore.spark.pipelines.report import Report
from kafkacore.storage.format import FormatOptions, format_directories
from kafkacore.tools import demo_apache, dev
from kafkacore.tools.demo import NEEDS_CLIENTS, SESSION_MS, Member, read_text
from kafkacore.tools.demo_cluster import PARTITIONS, REPLICAS, DemoCluster, Stream, kill_leader
from kafkacore.tools.demo_parts import PATIENCE_S, DemoFailedError, create_topic, heading, say, wait_for

LINES, COUNTS, GROUP = "lines", "counts", "readers"
PIPELINES: Final = ("replica-audit", "controller-report", "lag-history", "placement-plan", "plane-report")
LIMIT_S: Final = 180  # the time that the demo should take at most on two idle cores
SAMPLED_OF: Final = 10  # the request logs contain one of every 10 requests
TEXT: Final = 100_000  # the number of different lines; after the last line, the producer begins again
PAUSE_S: Final = 0.005  # the pause after every 24 lines, because the producer shares the cores with Spark and six nodes
BEHIND: Final = 20_000  # the number of records that the group has not read when its member is replaced
# The timestamp of the last record is this far ahead of the present: it is after every window, but brokers accept it.
END_MARK_MS: Final = 600_000
SETTINGS: Final = {
    "group.min.session.timeout.ms": str(SESSION_MS),
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": str(REPLICAS),
}
PARTITIONS_IN_ALL: Final = 2 * PARTITIONS + int(SETTINGS["offsets.topic.num.partitions"])
MISSING: Final = (
    "not shown here: the same with exactly-once. This needs a broker with transactions: `make peers` fetches Apache "
    "Kafka 4.3, or KAFKA_HOME names an installation"
)


def run(arguments: Namespace) -> int:
    """Runs the demo. Returns 0 if nothing was lost. Otherwise prints which proof failed, and returns 1."""
    try:
        import confluent_kafka  # noqa: F401
    except ImportError:
        print(f"kafkacore: {NEEDS_CLIENTS}", file=sys.stderr)
        return 1
    directory = Path(tempfile.mkdtemp(prefix="kafkacore-spark-demo-")).resolve()
    output = Path(arguments.output or directory / "output").resolve()
    try:
        Demo(directory, output).show(arguments.seconds)
    except DemoFailedError as error:
        print(f"\nkafkacore: {error}", file=sys.stderr)
        return 1
    finally:
        for path in directory.iterdir():
            if path != output and not arguments.keep:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        if arguments.keep:
            say(f"The files of the nodes are in {directory}")
        elif arguments.output:
            directory.rmdir()
    return 0


class Demo:
    """The demo, chapter by chapter. The directory `output` gets the HTML page, and one directory of tables for each
    pipeline."""

    def __init__(self, directory: Path, output: Path, open_spark: Callable[[], Any] = demo.open_session) -> None:
        self.directory, self.output, self._open_spark = directory, output, open_spark
        self.cluster = DemoCluster(directory / "cluster", SETTINGS, sampled_of=SAMPLED_OF)
        self.pipelines = PIPELINES
        self.again = 0  # the number of rows that are in the topic twice
        self.events: list[Event] = []
        self.proofs: list[Proof] = []
        self.took_s = 0.0
        self._began = time.monotonic()

    def show(self, seconds: int) -> None:
        """Runs all chapters. Raises DemoFailedError if a line is lost or counted twice, or if data does not flow."""
        self.output.mkdir(parents=True, exist_ok=True)
        report = Report("A pipeline on Spark, from end to end")
        counting: Counting | None = None
        try:
            self._start()
            counting = demo.Counting(self.spark, self.cluster.bootstrap, LINES, COUNTS, str(self.directory / "query"))
            acknowledged = self._count(counting, seconds)
            self._prove_counts(counting, acknowledged)
            self._exactly_once(counting, acknowledged)
            self._chapter("Brokers and controllers stop, and pipelines read their directories")
            self.cluster.stop()
            found = Report("")
            self._read_directories(found)
            self._write_page(report, counting, found)
        except (demo.DemoQueryError, UnsupportedSparkError) as error:
            raise DemoFailedError(str(error)) from None
        finally:
            if counting is not None:
                counting.stop()
            self.cluster.kill()

    def _chapter(self, text: str) -> None:
        heading(f"{text}   [{time.monotonic() - self._began:.0f} s]")

    def _start(self) -> None:
        """Starts the cluster and Spark at the same time."""
        self._chapter("Three brokers, three controllers and a local Spark")
        took_s: list[float] = []
        thread = threading.Thread(target=lambda: took_s.append(self.cluster.start()), daemon=True)
        thread.start()
        began = time.monotonic()
        self.spark = self._open_spark()
        spark_s = time.monotonic() - began
        thread.join()
        if not took_s:
            raise DemoFailedError("the cluster did not start; its output is above")
        say(f"the cluster is ready after {took_s[0]:.1f} s, and Spark {self.spark.version} after {spark_s:.1f} s")
        create_topic(self.cluster.bootstrap, LINES, PARTITIONS, REPLICAS, {"min.insync.replicas": "2"})
        create_topic(self.cluster.bootstrap, COUNTS, PARTITIONS, REPLICAS, {"min.insync.replicas": "2"})

    def _count(self, counting: Counting, seconds: int) -> int:
        """Writes lines. Meanwhile kills a broker, makes the query fail and stops the group. Returns the number of
        lines."""
        bootstrap = self.cluster.bootstrap
        text = read_text(TEXT)
        self._chapter("A query counts lines by keyword and window, into Parquet and into a topic")
        member = Member(bootstrap, LINES, GROUP)
        try:
            counting.start()
            with Stream(bootstrap, text, LINES, PAUSE_S) as stream:
                end = time.monotonic() + seconds
                counting.wait_batches(2, _tell)
                member = self._leave_group(member, stream, text)
                self._mark("a leader is killed")
                kill_leader(self.cluster, stream)
                self._mark("the broker is back in sync")
                counting.wait_batches(1, _tell)
                self._fail_query(counting)
                while time.monotonic() < end:
                    counting.wait_batches(1, _tell)
            say(f"the producer has ended: {stream.count():,} lines are acknowledged")
            counting.finish()
            everything = "everything read by the group"
            wait_for(lambda: sum(member.committed.values()) == stream.count(), everything, demo.PATIENCE_S)
        finally:
            member.kill()
        return stream.count()

    def _leave_group(self, member: Member, stream: Stream, text: list[bytes]) -> Member:
        """Kills the member of the group, lets the lag grow, and starts another member."""
        wait_for(lambda: sum(member.committed.values()) > 0, "a commit of the group", demo.PATIENCE_S)
        member.kill()
        goal = stream.count() + min(BEHIND, len(text))
        wait_for(lambda: stream.count() >= goal, "more lines", demo.PATIENCE_S)
        return Member(self.cluster.bootstrap, LINES, GROUP)

    def _fail_query(self, counting: Counting) -> None:
        heading("The query fails when a batch is in the topic, but not yet in Parquet")
        counting.fail_between_writes()
        self._mark_at(counting.failed_at, "the query fails")
        counting.wait_batches(1, _tell)
        say("the query has continued from its checkpoint: this batch ran again")

    def _mark(self, name: str) -> None:
        self._mark_at(time.time(), name)

    def _mark_at(self, at: float, name: str) -> None:
        self.events.append(Event(at, name))

    def _prove_counts(self, counting: Counting, acknowledged: int) -> None:
        self._chapter("Proofs")
        self._note(demo.prove_counts(counting, acknowledged))
        self.again, batches = demo.rows_written_again(counting)
        ids = ", ".join(map(str, batches))
        say(f"at least once: {self.again} rows of batch {ids} are in the topic twice, because the query failed there")
        if not self.again:
            raise DemoFailedError("no batch was written again, though the query failed between its two writes")

    def _note(self, proofs: list[Proof]) -> None:
        for proof in proofs:
            say(f"{proof.claim}: {f'{proof.wrong:,} DIFFER of' if proof.wrong else 'yes,'} {proof.compared:,}")
        self.proofs += proofs

    def _exactly_once(self, counting: Counting, lines: int) -> None:
        installed = demo_apache.find()
        if installed is None:
            heading(MISSING)
            return
        self._chapter(f"Exactly once, into Apache Kafka {installed.version}")
        apache = OneApache(installed, self.directory / "apache")
        try:
            apache.start()
            create_topic(apache.bootstrap, COUNTS, PARTITIONS)
            create_topic(apache.bootstrap, demo.MARKERS, 1, 1, {"cleanup.policy": "compact"})
            source, target = (self.cluster.bootstrap, LINES), (apache.bootstrap, COUNTS)
            once = demo.ExactlyOnce(self.spark, source, target, lines, str(self.directory / "exactly-once"))
            self._kill_in_transactions(once, apache)
            self._note(demo.prove_exactly_once(once, counting))
        finally:
            apache.kill()

    def _kill_in_transactions(self, once: ExactlyOnce, apache: OneApache) -> None:
        once.start()
        once.wait_batches(2)
        apache.kill()
        took_s = apache.start()
        say(f"the broker was killed between batches of the query; the broker is back after {took_s:.1f} s")
        once.wait_end()
        how = "continued from its checkpoint" if once.restarts else "continued by itself"
        say(f"the query {how}; a record with a later timestamp now closes the last windows")
        write_end_mark(self.cluster.bootstrap)
        once.start()
        once.wait_end()

    def _read_directories(self, report: Report) -> None:
        brokers = [str(node.directory) for node in self.cluster.brokers.values()]
        controllers = [str(node.directory) for node in self.cluster.controllers.values()]
        inputs: dict[str, tuple[list[str], dict[str, Any]]] = {
            "replica-audit": (brokers, {"metadata": controllers, "compacted": []}),
            "controller-report": (controllers, {}),
            "lag-history": (brokers, {}),
            "placement-plan": (brokers + controllers[:1], {"drain": [], "rate_hours": 1.0}),
            "plane-report": ([str(self.cluster.request_logs)], {}),
        }
        for name in self.pipelines:
            paths, options = inputs[name]
            began = time.monotonic()
            code = demo.report_on_directories(self.spark, report, str(self.output), name, paths, **options)
            say(f"{name}: {time.monotonic() - began:.1f} s")
            if name == "replica-audit":
                self._note([Proof(f"The {REPLICAS} replicas of each partition agree", PARTITIONS_IN_ALL, code)])

    def _write_page(self, report: Report, counting: Counting, found: Report) -> None:
        wrong = [proof.claim for proof in self.proofs if proof.wrong]
        if wrong:
            report.text("Some comparisons found differences.", "bad")
        else:
            report.text("All comparisons agree.", "good")
        report.text(
            "A query counted the lines of a topic by keyword and window while they were written, into Parquet and into "
            "a topic. Meanwhile a broker was killed. Then the query failed between its two writes, so "
            f"{self.again} rows are in the topic twice."
        )
        report.rows("Proofs", ("claim", "compared", "different"), self.proofs)
        demo.show_counts(report, counting, self.events)
        report.append(found)
        page = self.output / "report.html"
        report.write(str(page))
        self._chapter(f"The page: {page}")
        self.took_s = time.monotonic() - self._began
        say(f"the demo took {self.took_s:.0f} s (limit on two idle cores: {LIMIT_S} s)")
        if wrong:
            raise DemoFailedError(f"these checks failed: {'; '.join(wrong)}")


def _tell(batch: Batch) -> None:
    say(f"batch {batch.number}: {batch.lines:,} lines in {batch.seconds:.1f} s, {batch.behind:,} not read yet")


def write_end_mark(bootstrap: str) -> None:
    """Writes a record without a value, with a timestamp after every window."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce(LINES, None, partition=0, timestamp=time.time_ns() // 1_000_000 + END_MARK_MS)
    if producer.flush(PATIENCE_S):
        raise DemoFailedError("the record that closes the last windows was not acknowledged")


class OneApache:
    """A broker and controller of Apache Kafka in one process, on a directory that kafkacore formats."""

    def __init__(self, installed: demo_apache.Installation, directory: Path) -> None:
        directory.mkdir(parents=True)
        data, control = (f"{dev.HOST}:{port}" for port in free_ports(2, dev.HOST))
        self.bootstrap = data
        settings = {
            "process.roles": "broker,controller", "node.id": "1", "controller.quorum.voters": f"1@{control}",
            "listeners": f"PLAINTEXT://{data},CONTROLLER://{control}",
            "offsets.topic.replication.factor": "1", "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1", "transaction.state.log.num.partitions": "3",
        }  # fmt: skip
        config = dev.configuration(str(directory / "data"), 0, [f"{key}={value}" for key, value in settings.items()])
        format_directories(
            config, FormatOptions(str(Uuid.random())), time.time_ns() // 1_000_000, say=lambda text: None
        )
        self._broker = demo_apache.ApacheBroker(installed, directory / "data", settings)

    def start(self) -> float:
        """Starts the process. Returns the time in seconds until it answers."""
        began = time.monotonic()
        self._broker.launch()
        wait_for(self._answers, "Apache Kafka ready", demo_apache.START_LIMIT_S)
        return time.monotonic() - began

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            return self._broker.lives() and bool(admin.list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def kill(self) -> None:
        self._broker.kill()
