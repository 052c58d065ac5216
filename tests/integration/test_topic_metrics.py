"""The metrics page of a node shows what real clients have written to its topics and read from them."""

import urllib.request

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from prometheus_client.parser import text_string_to_metric_families

from kafkacore._fast.plane.gate import GatePolicy
from kafkacore.runtime.ports import free_ports
from kafkacore.testing import Broker
from processes import wait_until

COUNT = 50


def page(port):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    return {
        (sample.name.removeprefix("kafka_server_"), sample.labels.get("topic")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if "brokertopicmetrics" in sample.name
    }


@pytest.mark.parametrize("hot", [True, False], ids=["processors", "handlers"])
def test_topic_shows_what_clients_wrote_and_read_until_it_is_deleted(hot):
    (port,) = free_ports(1)
    with Broker(configs={"metrics.port": str(port)}) as broker:
        if not hot:
            broker.node.broker.plane.native.publish_gate(GatePolicy("punt"))
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(COUNT):
            producer.produce("orders", b"v" * 100, partition=number % 2)
        assert producer.flush(30) == 0
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["orders"])
        left = COUNT
        while left:
            left -= len(consumer.consume(left, 30))
        consumer.close()
        shown = page(port)
        all_topics = {name: value for (name, topic), value in shown.items() if topic is None}
        orders = {name: value for (name, topic), value in shown.items() if topic == "orders"}
        assert orders["brokertopicmetrics_messagesin_total"] == COUNT
        assert orders["brokertopicmetrics_bytesin_total"] > COUNT * 100
        assert orders["brokertopicmetrics_bytesout_total"] == orders["brokertopicmetrics_bytesin_total"]
        assert orders["brokertopicmetrics_totalproducerequests_total"] >= 2
        assert orders["brokertopicmetrics_totalfetchrequests_total"] >= 2
        assert all_topics["brokertopicmetrics_messagesin_total"] > COUNT, "the group's records count, too"
        assert all_topics["brokertopicmetrics_replicationbytesin_total"] == 0
        admin.delete_topics(["orders"])["orders"].result(30)
        wait_until(lambda: not any(topic == "orders" for _, topic in page(port)), what="the topic's metrics to end")
        after = page(port)
        assert all(after[name, None] >= value for name, value in all_topics.items())
