"""How long requests took inside a broker, as the brokers' own request logs show it.

While a load runs, the loaded broker logs every request: our broker in its sampled request log, Apache Kafka in its
kafka-request.log. The plane report of `kafkacore spark` computes the times from both kinds of log. The logs are off
during all other measurements, because they cost time. A log does not contain the time before the network thread has
read a request.
"""

import importlib.util
import shutil
import time
from pathlib import Path

from benchmarks.control_plane import latency
from benchmarks.control_plane.pairs import BELOW, FULL, LIMIT_S, LOADED, REQUEST_LOG, latencies_ms

from asking import ask
from kafkacore.protocol.messages import IncrementalAlterConfigsRequest
from processes import wait_until
from quorums import OURS
from zookeeper_cluster import APACHE

LOADS = {"below": BELOW, "full": FULL}  # the number of connections that make the backlog
WRITTEN_S = 1.5  # our broker writes its log once a second
BROKER, BROKER_LOGGER = 4, 8  # types of resources
SET = 0
# The type of the resource, the key, and the values that switch the log of each kind of broker off and on.
SWITCHES = {
    OURS: (BROKER, "sampled.request.log.every", "0", "1"),
    APACHE: (BROKER_LOGGER, "kafka.request.logger", "WARN", "DEBUG"),
}


def switch(pair, *, on):
    """Switches the request log of the loaded broker on or off, and waits until this has an effect."""
    kind, key, *values = SWITCHES[pair.kind]
    made = IncrementalAlterConfigsRequest
    change = made.AlterableConfig(name=key, config_operation=SET, value=values[on])
    resource = made.AlterConfigsResource(resource_type=kind, resource_name=str(LOADED), configs=[change])
    [answer] = ask(pair.addresses[LOADED], made(resources=[resource]), 1).responses
    if answer.error_code:
        raise RuntimeError(f"{key}: error {answer.error_code}, {answer.error_message}")
    if on:
        wait_until(lambda: written(pair), LIMIT_S, f"a line in the request log of {pair.name}")


def written(pair):
    pair.leader_at(LOADED, pair.topic)  # a request, so that there is something to log
    return pair.request_log.stat().st_size


def record(pair, load, limit_s, out):
    """Puts a load on the loaded broker, and sends the controller's requests on each path to a handler. Copies the lines
    that the broker logs meanwhile to a file below `out`, and returns the path of that file."""
    switch(pair, on=True)
    before = pair.request_log.stat().st_size
    with pair.backlog(LOADS[load], logged=True) as backlog, backlog.running():
        for _, address, request in latency.ways(pair):
            latencies_ms(address, request, latency.ASKED, limit_s)
    time.sleep(WRITTEN_S)
    switch(pair, on=False)
    place = Path(out) / f"{pair.kind}-{'apart' if pair.apart else 'shared'}-{load}"
    place.mkdir(parents=True)
    with pair.request_log.open("rb") as log:
        log.seek(before)
        (place / REQUEST_LOG).write_bytes(log.read())
    return place / REQUEST_LOG


# --- the plane report ---


def is_readable():
    """Returns whether the plane report can run here."""
    return shutil.which("java") is not None and importlib.util.find_spec("pyspark") is not None


def distributions(spark, paths):
    """Returns the distribution of the total time for each log, plane and API: the values in milliseconds at each
    percentage of the requests."""
    from kafkacore.spark.pipelines import plane_report

    rows = plane_report.distribution(plane_report.read_logs(spark, [str(path) for path in paths])).collect()
    return {(Path(row.log).parent.name, row.plane, row.api): list(row.total) for row in rows}


# The API of the controller's requests on each path, and of the requests of the clients that make the backlog.
WAYS = {
    OURS: {
        "shared": "ALTER_PARTITION", "lane": "STOP_REPLICA", "apart": "STOP_REPLICA", "clients": "DESCRIBE_CONFIGS",
    },
    APACHE: {"shared": "STOP_REPLICA", "apart": "STOP_REPLICA", "clients": "INCREMENTAL_ALTER_CONFIGS"},
}  # fmt: skip


def by_way(found, kind, load):
    """Returns the distributions of one kind of broker under one load, by the path of the requests. The values of
    `clients` are from the cluster without a control plane."""
    totals = {(name, api): total for (name, _, api), total in found.items()}
    shown = {
        way: totals.get((f"{kind}-{'apart' if way == 'apart' else 'shared'}-{load}", api))
        for way, api in WAYS[kind].items()
    }
    return {way: total for way, total in shown.items() if total}
