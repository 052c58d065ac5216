"""Blocks of producer ids. A broker never assigns an id twice, and it gets the next block in time."""

import asyncio

import pytest

from kafkacore.protocol.errors import KafkaError
from kafkacore.server.producer_ids import ProducerIdBlock, ProducerIds


class Controller:
    """A stub of the controller that returns blocks of ten ids. The test makes it wait or fail."""

    def __init__(self) -> None:
        self.blocks = 0
        self.failures = 0
        self.open = asyncio.Event()
        self.open.set()

    async def allocate(self) -> ProducerIdBlock:
        await self.open.wait()
        if self.failures:
            self.failures -= 1
            raise KafkaError("no controller")
        self.blocks += 1
        return ProducerIdBlock((self.blocks - 1) * 10, 10)


def test_ids_are_unique_over_many_blocks_and_callers() -> None:
    async def story() -> None:
        controller = Controller()
        ids = ProducerIds(controller.allocate)
        given = await asyncio.gather(*(ids.generate() for _ in range(95)))
        assert sorted(given) == list(range(95))

    asyncio.run(story())


def test_next_block_is_requested_before_the_present_one_ends() -> None:
    async def story() -> None:
        controller = Controller()
        ids = ProducerIds(controller.allocate)
        for _ in range(9):
            await ids.generate()
        await asyncio.sleep(0)
        controller.open.clear()
        assert controller.blocks == 2
        assert [await ids.generate() for _ in range(3)] == [9, 10, 11]
        ids.close()

    asyncio.run(story())


def test_failure_is_raised_and_the_next_call_asks_again() -> None:
    async def story() -> None:
        controller = Controller()
        controller.failures = 1
        ids = ProducerIds(controller.allocate)
        with pytest.raises(KafkaError):
            await ids.generate()
        assert await ids.generate() == 0

    asyncio.run(story())


def test_cancelled_caller_leaves_the_block_to_the_others() -> None:
    async def story() -> None:
        controller = Controller()
        controller.open.clear()
        ids = ProducerIds(controller.allocate)
        impatient, patient = asyncio.create_task(ids.generate()), asyncio.create_task(ids.generate())
        await asyncio.sleep(0)
        impatient.cancel()
        controller.open.set()
        assert await patient == 0
        assert controller.blocks == 1

    asyncio.run(story())
