"""A processor continues to serve all other clients while one client sends Produce requests of 2 MB, which contain very
many batches or inflate to 24 GB."""

from attacks import HonestClient, Line, attack, batch, produce
from brokers import Node
from kafkacore.protocol.errors import ErrorCode

BATCHES = 3_000
PRODUCERS = 30_000
WIDE_PARTITIONS = 300
INFLATED_BYTES = 8_000_000
SERVED = {ErrorCode.NONE, ErrorCode.INVALID_REQUEST}  # the broker may refuse a request that contains a partition twice


def test_processor_serves_others_when_produces_to_300_partitions_inflate_to_24_gb(
    node: Node, honest: HonestClient
) -> None:
    """Each request contains each partition once, and a processor may serve many requests in one turn."""
    bomb, harmless = batch(bytes(INFLATED_BYTES), "zstd"), batch()
    partitions = range(WIDE_PARTITIONS)
    first = produce("wide", [(each, harmless) for each in partitions])
    question = produce("wide", [(each, bomb) for each in partitions])
    with Line(node.bootstrap) as line:
        line.ask(first)  # creates the logs
        honest.forget()
        line.send(question.frame() * (BATCHES // WIDE_PARTITIONS))
        answers = [question.decode(line.receive()) for _ in range(BATCHES // WIDE_PARTITIONS)]
    honest.check()
    parts = [each for answer in answers for each in answer.responses[0].partition_responses]
    assert [each.error_code for each in parts] == [ErrorCode.NONE] * BATCHES


def test_processor_serves_others_when_a_produce_inflates_to_24_gb(node: Node, honest: HonestClient) -> None:
    question = produce("attacked", [(0, batch(bytes(INFLATED_BYTES), "zstd"))] * BATCHES)
    assert len(question.frame()) < 2 << 20
    answer = attack(node.bootstrap, question, honest)
    assert {each.error_code for each in answer.responses[0].partition_responses} <= SERVED


def test_processor_serves_others_when_a_produce_has_30000_producers(node: Node, honest: HonestClient) -> None:
    question = produce("attacked", [(0, batch(producer_id=each)) for each in range(PRODUCERS)])
    answer = attack(node.bootstrap, question, honest)
    assert {each.error_code for each in answer.responses[0].partition_responses} <= SERVED
