import asyncio
from types import SimpleNamespace

from kafkacore.controller.zookeeper.request_batches import ControlRequest
from kafkacore.controller.zookeeper.senders import RETRY_MS, Senders
from kafkacore.controller.zookeeper.surroundings import ControllerSettings, LiveBroker
from kafkacore.protocol.messages import StopReplicaRequest
from kafkacore.runtime.sampling import Distribution
from kafkacore.zookeeper.znodes import BrokerRegistration, Endpoint

ENDPOINTS = tuple(Endpoint(name, "PLAINTEXT", "host", 9092) for name in ("PLAINTEXT", "CONTROLLER"))


def broker(epoch, endpoints=ENDPOINTS):
    return LiveBroker(5, epoch, BrokerRegistration(5, endpoints))


def request(number):
    return ControlRequest(number, 0, StopReplicaRequest())


class Wire:
    """A stub of the connections to brokers. The first `failures` requests fail, and all later ones are answered. The
    pause between two attempts lasts until the test ends it."""

    def __init__(self, failures=0):
        self.failures = failures
        self.sent, self.pauses, self.answered = [], [], []
        self.hold = None
        self.answered_ms = Distribution()

    async def send(self, to, listener, api_key, api_version, body):
        self.sent.append((to.epoch, listener, api_key))
        if self.hold is not None:
            await self.hold
        if self.failures:
            self.failures -= 1
            raise ConnectionRefusedError
        return "answer"

    def call_later(self, delay_ms, callback):
        self.pauses.append((delay_ms, callback))
        return SimpleNamespace(cancel=lambda: None)

    def senders(self, **settings):
        note = lambda to, asked, response: self.answered.append((to.epoch, asked.api_key, response))  # noqa: E731
        return Senders(ControllerSettings(1, **settings), self, note, self.answered_ms)


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


def test_requests_leave_in_order_one_at_a_time():
    async def story():
        wire = Wire()
        wire.hold = asyncio.get_running_loop().create_future()
        senders = wire.senders()
        senders.add(broker(1))
        for number in (4, 6, 5):
            senders.deliver(broker(1), request(number), 0.0)
        await turns()
        assert wire.sent == [(1, "PLAINTEXT", 4)]
        assert senders.waiting(5) == 3
        wire.hold.set_result(None)
        await turns()
        assert [each[1] for each in wire.answered] == [4, 6, 5]
        assert not senders.waiting(5)

    asyncio.run(story())


def test_queue_and_times_are_measured_when_a_broker_answers_late():
    async def story():
        wire = Wire(failures=1)
        wire.hold = asyncio.get_running_loop().create_future()
        senders = wire.senders()
        senders.add(broker(1))
        [sender] = senders.all()
        changed_s = asyncio.get_running_loop().time() - 3600
        for number in (4, 6):
            senders.deliver(broker(1), request(number), changed_s)
        await turns()
        assert (sender.queued, sum(sender.queue_ms.counts)) == (1, 1), "one request is in flight"
        wire.hold.set_result(None)
        await turns()
        assert (sum(sender.queue_ms.counts), sum(wire.answered_ms.counts)) == (1, 0), "the broker has not answered yet"
        wire.pauses[0][1]()
        await turns()
        assert (sender.queued, sum(sender.queue_ms.counts)) == (0, 2)
        assert wire.answered_ms.counts[-1] == 2, "an hour after the change"

    asyncio.run(story())


def test_request_is_sent_again_after_a_pause_until_the_broker_answers():
    async def story():
        wire = Wire(failures=2)
        senders = wire.senders()
        senders.add(broker(1))
        senders.deliver(broker(1), request(4), 0.0)
        for _ in range(2):
            await turns()
            delay_ms, end = wire.pauses[-1]
            assert delay_ms == RETRY_MS
            end()
        await turns()
        assert len(wire.sent) == 3
        assert wire.answered == [(1, 4, "answer")]

    asyncio.run(story())


def test_sender_goes_on_after_an_answer_that_it_cannot_read():
    async def story():
        wire = Wire()
        senders = Senders(ControllerSettings(1), wire, lambda to, asked, response: response.error_code, Distribution())
        send, broken = wire.send, [ValueError("not a message")]

        async def damaged(*arguments):
            await send(*arguments)
            if broken:
                raise broken.pop()

        wire.send = damaged
        senders.add(broker(1))
        senders.deliver(broker(1), request(4), 0.0)
        senders.deliver(broker(1), request(6), 0.0)
        await turns()
        wire.pauses[0][1]()
        await turns()
        assert [api_key for _, _, api_key in wire.sent] == [4, 4, 6]
        assert not senders.waiting(5)

    asyncio.run(story())


def test_sender_drops_a_request_when_it_cannot_be_encoded(caplog):
    async def story():
        wire = Wire()
        send = wire.send

        async def encoded(to, listener, api_key, api_version, body):
            body.encode(api_version)
            return await send(to, listener, api_key, api_version, body)

        wire.send = encoded
        senders = wire.senders()
        senders.add(broker(1))
        senders.deliver(broker(1), ControlRequest(4, 0, StopReplicaRequest(controller_epoch=1 << 31)), 0.0)
        senders.deliver(broker(1), request(6), 0.0)
        await turns()
        assert wire.answered == [(1, 6, "answer")]
        assert not wire.pauses
        assert not senders.waiting(5)
        [logged] = [each.getMessage() for each in caplog.records if each.exc_info]
        assert "cannot be encoded" in logged

    asyncio.run(story())


def test_retries_end_with_the_generation_of_the_broker():
    async def story():
        wire = Wire(failures=1)
        senders = wire.senders()
        senders.add(broker(1))
        senders.deliver(broker(1), request(4), 0.0)
        await turns()
        senders.add(broker(2))
        wire.pauses[0][1]()
        await turns()
        assert [epoch for epoch, *_ in wire.sent] == [1]
        senders.deliver(broker(1), request(4), 0.0)  # for an earlier broker epoch of broker 1
        senders.deliver(broker(2), request(6), 0.0)
        await turns()
        assert wire.sent[1:] == [(2, "PLAINTEXT", 6)]

    asyncio.run(story())


def test_answer_to_a_former_generation_is_dropped():
    async def story():
        wire = Wire()
        wire.hold = asyncio.get_running_loop().create_future()
        senders = wire.senders()
        senders.add(broker(1))
        senders.deliver(broker(1), request(4), 0.0)
        await turns()
        senders.remove(5)
        wire.hold.cancel()
        await turns()
        assert not wire.answered
        assert not len(senders)

    asyncio.run(story())


def test_control_plane_serves_where_the_broker_advertises_it():
    async def story():
        wire = Wire()
        senders = wire.senders(control_plane_listener="CONTROLLER")
        senders.add(broker(1))
        senders.deliver(broker(1), request(4), 0.0)
        await turns()
        senders.add(broker(2, ENDPOINTS[:1]))
        senders.deliver(broker(2), request(4), 0.0)
        await turns()
        assert [listener for _, listener, _ in wire.sent] == ["CONTROLLER", "PLAINTEXT"]

    asyncio.run(story())
