import asyncio
import itertools

from kafkacore.controller.zookeeper.event_queue import PATIENCE, EventQueue
from kafkacore.controller.zookeeper.events import Event, Notification, Priority
from kafkacore.controller.zookeeper.protocols.broker_join import BrokerChange
from kafkacore.controller.zookeeper.protocols.partition_expansion import PartitionModifications
from kafkacore.controller.zookeeper.protocols.topic_creation import TopicChange


class Upkeep(Event):
    priority = Priority.UPKEEP


class Urgent(Event):
    priority = Priority.LEADERSHIP


class Session(Notification):
    priority = Priority.SESSION


def taken(queue, count):
    async def take():
        return [await queue.take() for _ in range(count)]

    return asyncio.run(take())


def test_queue_gives_the_most_urgent_event_first_and_keeps_the_order_of_a_class():
    queue = EventQueue()
    events = [Upkeep(), Urgent(), TopicChange(), Urgent(), BrokerChange(), Session()]
    for event in events:
        queue.put(event)
    upkeep, first, topics, second, brokers, session = events
    assert taken(queue, 6) == [session, brokers, first, second, topics, upkeep]
    assert not len(queue)


def test_waiting_notifications_of_a_class_become_one():
    queue = EventQueue()
    for _ in range(5):
        queue.put(TopicChange())
    assert len(queue) == 1


def test_merged_event_keeps_what_both_carry():
    queue = EventQueue()
    queue.put(PartitionModifications(["one"]))
    queue.put(PartitionModifications(["two"]))
    (event,) = taken(queue, 1)
    assert event.topics == {"one", "two"}


def test_event_that_runs_absorbs_no_later_one():
    queue = EventQueue()
    queue.put(PartitionModifications(["one"]))
    (running,) = taken(queue, 1)
    queue.put(PartitionModifications(["two"]))
    assert running.topics == {"one"}
    assert len(queue) == 1


def test_events_without_a_key_stay_apart():
    queue = EventQueue()
    queue.put(Urgent())
    queue.put(Urgent())
    assert len(queue) == 2


def test_lowest_class_has_a_turn_when_others_overtake_it_all_the_time():
    queue = EventQueue()
    upkeep = Upkeep()
    queue.put(upkeep)
    for _ in range(2 * PATIENCE):
        queue.put(Urgent())
    assert upkeep in taken(queue, PATIENCE)


def test_request_has_a_turn_when_upkeep_comes_back_whenever_it_has_run():
    async def story():
        queue, order, clock = EventQueue(), [], itertools.count()

        def put(event):
            event.queued_s = float(next(clock))
            queue.put(event)

        topics = TopicChange()
        put(Upkeep())
        put(topics)
        while topics not in order and len(order) < 4 * PATIENCE:
            put(Urgent())
            event = await queue.take()
            order.append(event)
            if isinstance(event, Upkeep):
                put(Upkeep())
        return order

    order = asyncio.run(story())
    assert [type(each) for each in order if isinstance(each, (Upkeep, TopicChange))] == [Upkeep, TopicChange]


def test_clear_hands_over_every_event_and_forgets_their_keys():
    queue = EventQueue()
    events = [TopicChange(), Urgent()]
    for event in events:
        queue.put(event)
    dropped = []
    queue.clear(dropped.append)
    assert sorted(map(repr, dropped)) == sorted(map(repr, events))
    assert not len(queue)
    queue.put(TopicChange())
    assert len(queue) == 1


def test_taker_wakes_when_an_event_comes():
    async def story():
        queue = EventQueue()
        taking = asyncio.ensure_future(queue.take())
        await asyncio.sleep(0)
        event = TopicChange()
        queue.put(event)
        assert await taking is event

    asyncio.run(story())
