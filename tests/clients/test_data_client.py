"""The data client with Apache Kafka: transactions, compacted logs, TLS and SASL."""

from __future__ import annotations

import shutil
import subprocess

import pytest
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from brokers import ApacheKafka, need_jars
from kafkacore.client import EARLIEST, LATEST, Client, OffsetOutOfRange, Range, ServerNotTrusted, TopicRecreated
from kafkacore.protocol.errors import KafkaError
from kafkacore.runtime.ports import free_ports
from processes import need, wait_until

pa = pytest.importorskip("pyarrow", reason="no PyArrow: pip install kafkacore[spark], or ci/spark.sh")
pytestmark = pytest.mark.timeout(120)
PASSWORD = "pass-word1"
PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="{PASSWORD}";'
SCRAM = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="ann" password="{PASSWORD}";'


def run(*words, cwd):
    subprocess.run([str(word) for word in words], check=True, capture_output=True, cwd=cwd, timeout=60)


def certificates(directory):
    """Makes a certificate authority, and a key and a certificate for a server at 127.0.0.1, as PEM files."""
    openssl = ("openssl", "req", "-newkey", "rsa:2048", "-nodes", "-days", "2")
    run(*openssl, "-x509", "-subj", "/CN=ca", "-keyout", "ca.key", "-out", "ca.pem", cwd=directory)
    run(*openssl, "-subj", "/CN=server", "-keyout", "server.key", "-out", "server.csr", cwd=directory)
    (directory / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    run(
        "openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
        "-days", "2", "-extfile", "names", "-out", "server.pem", cwd=directory,
    )  # fmt: skip
    key, chain = (directory / "server.key").read_text(), (directory / "server.pem").read_text()
    (directory / "keystore.pem").write_text(key + chain)


class Secured(ApacheKafka):
    """Apache Kafka with a listener for each security protocol. The command that formats its directory creates the SCRAM
    user."""

    def java(self, main, *arguments):
        if "format" in arguments:
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
                arguments += ("--add-scram", f"{mechanism}=[name=ann,password={PASSWORD}]")
        super().java(main, *arguments)


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """Returns a broker of Apache Kafka, and the address of each of its listeners."""
    need(shutil.which("java") and shutil.which("openssl"), "no java or no openssl")
    need_jars("4.3.1")
    directory = tmp_path_factory.mktemp("secured")
    certificates(directory)
    ports = dict(zip(("SSL", "SASL_PLAINTEXT", "SASL_SSL"), free_ports(3), strict=True))
    plain, control = free_ports(2)
    own = f"PLAINTEXT://127.0.0.1:{plain},CONTROLLER://127.0.0.1:{control}"
    overrides = {
        "listeners": own,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_SSL:SASL_SSL,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "advertised.listeners": ",".join(
            [f"PLAINTEXT://127.0.0.1:{plain}", *(f"{name}://127.0.0.1:{port}" for name, port in ports.items())]
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": directory / "keystore.pem",
    }
    for name in ("sasl_plaintext", "sasl_ssl"):
        overrides[f"listener.name.{name}.plain.sasl.jaas.config"] = PLAIN.replace(";", f' user_ann="{PASSWORD}";')
        for mechanism in ("scram-sha-256", "scram-sha-512"):
            overrides[f"listener.name.{name}.{mechanism}.sasl.jaas.config"] = SCRAM

    class Listening(Secured):
        def settings(self, given):
            found = super().settings(given)
            more = [f"{name}://127.0.0.1:{port}" for name, port in ports.items()]
            return {**found, "listeners": ",".join([found["listeners"], *more])}

    broker = Listening("apache-4.3", directory / "broker", overrides)
    addresses = {"PLAINTEXT": f"127.0.0.1:{plain}"} | {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    yield directory, addresses
    broker.stop()


@pytest.fixture
def made(secured, topic_name):
    """Returns the address of the listener without security, and the name of a topic with three partitions."""
    bootstrap = secured[1]["PLAINTEXT"]
    create(bootstrap, topic_name, 3)
    return bootstrap, topic_name


def create(bootstrap, topic, partitions=1, **config):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=config)])[topic].result(20)


def values(client, topic, partition=0, isolation="read_uncommitted"):
    end = client.offsets({(topic, partition): LATEST}, isolation)[topic, partition].offset
    found = client.read([Range(topic, partition, 0, end)], ["value", "offset"], isolation)
    return [value for rows in found for value in pa.record_batch(rows).column("value").to_pylist()]


def wait_for_end(client, topic, offset, partition=0):
    """Waits until a transaction's markers are in the partitions. The broker answers a commit before it writes them."""
    key = topic, partition
    wait_until(
        lambda: client.offsets({key: LATEST}, "read_committed")[key].offset >= offset,
        20,
        f"a stable offset of {offset}",
    )


def batch_of(*given):
    return pa.record_batch({"value": list(given)})


def test_committed_rows_are_seen_and_aborted_ones_left_out_when_read_committed(made):
    bootstrap, topic = made
    with Client(bootstrap) as client, client.producer({"transactional.id": topic}) as producer:
        for number, commit in enumerate((True, False, True, False)):
            producer.begin()
            producer.send(topic, 0, batch_of(*(b"%d-%d" % (number, i) for i in range(3))))
            producer.send(topic, None, batch_of(b"elsewhere"))
            producer.flush()
            producer.commit() if commit else producer.abort()
        committed = [b"0-0", b"0-1", b"0-2", b"2-0", b"2-1", b"2-2"]
        zero = [each for each in values(client, topic, 0, "read_committed") if each != b"elsewhere"]
        assert zero == committed
        assert len([each for each in values(client, topic, 0) if each != b"elsewhere"]) == 12


def test_an_open_transaction_hides_its_rows_until_it_ends(made):
    bootstrap, topic = made
    with Client(bootstrap) as client, Client(bootstrap) as writer:
        producer = writer.producer({"transactional.id": topic})
        producer.begin()
        producer.send(topic, 0, batch_of(b"v"))
        producer.flush()
        key = (topic, 0)
        assert client.offsets({key: LATEST}, "read_committed")[key].offset == 0
        assert client.offsets({key: LATEST})[key].offset == 1
        producer.commit()
        wait_for_end(client, topic, 2)
        assert values(client, topic, 0, "read_committed") == [b"v"]
        producer.close()


def test_an_older_producer_is_fenced_by_one_with_the_same_id(made):
    bootstrap, topic = made
    with Client(bootstrap) as one, Client(bootstrap) as two:
        old, new = (client.producer({"transactional.id": topic}) for client in (one, two))
        old.begin()
        old.send(topic, 0, batch_of(b"old"))
        old.flush()
        new.begin()
        new.send(topic, 0, batch_of(b"new"))

        def write_as_zombie():
            old.send(topic, 0, batch_of(b"zombie"))  # raises the error itself if the broker answers quickly
            old.commit()

        with pytest.raises(KafkaError, match=r"epoch|fenced|newer"):
            write_as_zombie()
        new.commit()
        wait_for_end(two, topic, 4)
        assert values(two, topic, 0, "read_committed") == [b"new"]


def test_transactions_of_librdkafka_are_read_like_ours(made):
    bootstrap, topic = made
    producer = ConfluentProducer(
        {"bootstrap.servers": bootstrap, "transactional.id": f"{topic}-r", "compression.type": "zstd"}
    )
    producer.init_transactions(20)
    for number, commit in enumerate((False, True, False)):
        producer.begin_transaction()
        for i in range(100):
            producer.produce(topic, b"%d-%d" % (number, i), partition=1)
        producer.flush(20)
        producer.commit_transaction(20) if commit else producer.abort_transaction(20)
    with Client(bootstrap) as client:
        assert values(client, topic, 1, "read_committed") == [b"1-%d" % i for i in range(100)]
        assert len(values(client, topic, 1)) == 300


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs_are_written_and_read_back(made, codec):
    bootstrap, topic = made
    given = [b"%d" % i * 50 for i in range(2000)]
    with Client(bootstrap) as client:
        with client.producer({"compression.type": codec}) as producer:
            producer.send(topic, 0, batch_of(*given))
        assert values(client, topic) == given


def test_deleted_records_and_recreated_topics_are_named(made):
    bootstrap, topic = made
    with Client(bootstrap) as client:
        with client.producer() as producer:
            producer.send(topic, 0, batch_of(*(b"%d" % i for i in range(10))))
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
            future.result(20)
        assert client.offsets({(topic, 0): EARLIEST})[topic, 0].offset == 4
        with pytest.raises(OffsetOutOfRange, match="the log has 4 to 10"):
            list(client.read([Range(topic, 0, 0, 10)]))
        before = client.topics([topic])[topic].id
        admin.delete_topics([topic])[topic].result(20)
        create(bootstrap, topic)
        with pytest.raises(TopicRecreated):
            list(client.read([Range(topic, 0, 0, 10, before)]))


@pytest.mark.parametrize(
    ("protocol", "mechanism"),
    [("SSL", None), ("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "PLAIN"),
     ("SASL_PLAINTEXT", "SCRAM-SHA-256")],
)  # fmt: skip
def test_rows_are_written_and_read_when_the_listener_is_secured(secured, made, protocol, mechanism):
    directory, addresses = secured
    options = {"security.protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl.truststore.location"] = directory / "ca.pem"
    if mechanism:
        options |= {"sasl.mechanism": mechanism, "sasl.jaas.config": PLAIN if mechanism == "PLAIN" else SCRAM}
    given = [b"%d" % i * 200 for i in range(5000)]
    with Client(addresses[protocol], options) as client:
        with client.producer() as producer:
            producer.send(made[1], 0, batch_of(*given))
        assert values(client, made[1]) == given


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_wrong_password_is_refused_at_once(secured, mechanism):
    jaas = (PLAIN if mechanism == "PLAIN" else SCRAM).replace(PASSWORD, "wrong")
    options = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    with (
        Client(secured[1]["SASL_PLAINTEXT"], options) as client,
        pytest.raises(KafkaError, match=r"[Aa]uthentication failed"),
    ):
        client.topics()


def test_a_certificate_that_nobody_vouches_for_is_refused_at_once(secured):
    with (
        Client(secured[1]["SSL"], {"security.protocol": "SSL"}) as client,
        pytest.raises(ServerNotTrusted, match=r"its certificate is refused: .*CERTIFICATE_VERIFY_FAILED"),
    ):
        client.topics()
