"""The requests that the controller sends because of one event. A broker gets at most one request of each kind. A
request that is meant for a previous broker epoch is not sent."""

import pytest
from tests.support.model_broker import stops

from kafkacore.controller.zookeeper.context import ControllerContext
from kafkacore.controller.zookeeper.inter_broker_protocol import InterBrokerProtocol
from kafkacore.controller.zookeeper.leadership import Assignment, first_leadership
from kafkacore.controller.zookeeper.request_batches import RequestBatch
from kafkacore.controller.zookeeper.surroundings import ControllerSettings, LiveBroker
from kafkacore.protocol.apis import ApiKey
from kafkacore.zookeeper.znodes import BrokerRegistration, Endpoint


class Batch:
    """A request batch for brokers 1 and 2 about two partitions of the topic `events`. Also collects the requests that
    the batch delivers."""

    def __init__(self, protocol="3.9"):
        self.context = ControllerContext(epoch=7)
        self.join(1, 100)
        self.join(2, 200)
        topic = self.context.add_topic("events", None)
        for number in (0, 1):
            row = self.context.add_partition(topic, number, Assignment((1, 2)))
            self.context.leaderships[row] = first_leadership(1, (1, 2), 7)
        self.sent = []
        settings = ControllerSettings(9, inter_broker_protocol=InterBrokerProtocol(protocol))
        self.batch = RequestBatch(self.context, settings, lambda broker, request: self.sent.append((broker, request)))

    def join(self, broker_id, epoch):
        endpoint = Endpoint("PLAINTEXT", "PLAINTEXT", "host", 9092)
        self.context.brokers[broker_id] = LiveBroker(broker_id, epoch, BrokerRegistration(broker_id, (endpoint,)))

    def kinds(self, broker_id):
        return [request.api_key for broker, request in self.sent if broker.broker_id == broker_id]

    def body(self, broker_id, api_key):
        (found,) = [
            request for broker, request in self.sent if (broker.broker_id, request.api_key) == (broker_id, api_key)
        ]
        return type(found.body).decode(memoryview(bytes(found.body.encode(found.api_version))), found.api_version)


def test_event_sends_one_request_of_a_kind_to_each_broker_in_kafkas_order():
    it = Batch()
    it.batch.stop_replica(2, 1)
    it.batch.stop_replica(2, 1, delete=True)
    it.batch.leader_and_isr((1, 2), 0)
    it.batch.leader_and_isr((1,), 0, is_new=True)
    it.batch.flush()
    assert it.kinds(1) == [ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA]
    assert it.kinds(2) == [ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA]
    assert stops(4, it.body(2, ApiKey.STOP_REPLICA)) == [("events", 1, True)]
    (topic,) = it.body(1, ApiKey.LEADER_AND_ISR).topic_states
    assert [each.is_new for each in topic.partition_states] == [True]
    assert it.batch.is_empty


def test_loop_can_send_leader_and_isr_before_update_metadata_is_made():
    it = Batch()
    it.batch.leader_and_isr((1, 2), 0)
    kinds = [[request.api_key for _, request in it.sent] for _ in it.batch.flushing()]
    assert [ApiKey.LEADER_AND_ISR] * 2 in kinds
    assert len(it.sent) == 4


def test_content_is_that_of_the_end_of_the_event():
    it = Batch()
    it.batch.leader_and_isr((1,), 0)
    it.context.leaderships[0] = it.context.leaderships[0].led_by(2, (2,), 7)
    it.batch.flush()
    (topic,) = it.body(1, ApiKey.LEADER_AND_ISR).topic_states
    assert [(each.leader, each.isr) for each in topic.partition_states] == [(2, [2])]
    (topic,) = it.body(1, ApiKey.UPDATE_METADATA).topic_states
    assert [each.leader for each in topic.partition_states] == [2]


def test_broker_that_bounces_during_the_event_gets_nothing_of_its_former_life():
    it = Batch()
    it.batch.stop_replica(2, 0)
    it.batch.leader_and_isr((1, 2), 1)
    it.join(2, 201)
    it.batch.flush()
    assert it.kinds(2) == [ApiKey.UPDATE_METADATA]
    assert it.body(2, ApiKey.UPDATE_METADATA).broker_epoch == 201


def test_controller_sends_no_request_to_a_broker_when_it_is_not_live():
    it = Batch()
    del it.context.brokers[2]
    it.batch.stop_replica(2, 0)
    it.batch.leader_and_isr((1, 2), 0)
    it.join(2, 201)
    it.batch.flush()
    assert it.kinds(2) == [ApiKey.UPDATE_METADATA]


@pytest.mark.parametrize("stop_first", [True, False])
def test_replica_gets_both_requests_in_order_when_one_event_stops_and_starts_it(stop_first):
    it = Batch()
    steps = [lambda: it.batch.stop_replica(2, 0), lambda: it.batch.leader_and_isr((2,), 0)]
    for step in steps if stop_first else reversed(steps):
        step()
    it.batch.flush()
    kinds = [kind for kind in it.kinds(2) if kind != ApiKey.UPDATE_METADATA]
    wanted = [ApiKey.STOP_REPLICA, ApiKey.LEADER_AND_ISR]
    assert kinds == (wanted if stop_first else wanted[::-1])


def test_new_broker_hears_of_everything_and_the_others_of_changes():
    it = Batch()
    it.batch.update_metadata()
    it.batch.update_metadata_of((2,), (0, 1))
    it.batch.flush()
    assert it.body(1, ApiKey.UPDATE_METADATA).topic_states == []
    (topic,) = it.body(2, ApiKey.UPDATE_METADATA).topic_states
    assert [each.partition_index for each in topic.partition_states] == [0, 1]


def test_partition_of_a_doomed_topic_has_no_leader_in_the_metadata():
    it = Batch()
    it.context.topics_to_delete.add("events")
    it.batch.update_metadata((0,))
    it.batch.stop_replica(1, 0, delete=True)
    it.batch.flush()
    (topic,) = it.body(1, ApiKey.UPDATE_METADATA).topic_states
    assert [each.leader for each in topic.partition_states] == [-2]
    (topic,) = it.body(1, ApiKey.STOP_REPLICA).topic_states
    assert [each.leader_epoch for each in topic.partition_states] == [-2]


@pytest.mark.parametrize(("protocol", "version"), [("0.10.0", 0), ("2.2", 1), ("2.4", 2)])
def test_old_stop_replica_deletes_all_its_partitions_or_none(protocol, version):
    it = Batch(protocol)
    it.batch.stop_replica(2, 0)
    it.batch.stop_replica(2, 1, delete=True)
    it.batch.flush()
    found = [stops(version, request.body) for broker, request in it.sent if request.api_key == ApiKey.STOP_REPLICA]
    assert found == [[("events", 1, True)], [("events", 0, False)]]
    assert {request.api_version for _, request in it.sent if request.api_key == ApiKey.STOP_REPLICA} == {version}


@pytest.mark.parametrize(("protocol", "fenced"), [("2.1", False), ("2.2", True)])
def test_requests_name_the_generation_from_2_2_on(protocol, fenced):
    it = Batch(protocol)
    it.batch.leader_and_isr((2,), 0)
    it.batch.stop_replica(2, 1)
    it.batch.flush()
    for api_key in (ApiKey.LEADER_AND_ISR, ApiKey.UPDATE_METADATA, ApiKey.STOP_REPLICA):
        assert it.body(2, api_key).broker_epoch == (200 if fenced else -1)


def test_discarded_batch_sends_nothing():
    it = Batch()
    it.batch.leader_and_isr((1, 2), 0)
    it.batch.stop_replica(2, 1)
    it.batch.discard()
    it.batch.flush()
    assert not it.sent
