"""A proxy between a client and one broker, which spoils some answers to Produce requests.

After `with Relay(bootstrap) as relay:`, clients connect to `relay.address`, and the relay passes each request on
unchanged. After `relay.plan({partition: [PASS, REFUSE, ...]})`, it holds the next requests of these partitions until
all planned requests have arrived. It then treats the requests as planned, in the order of their arrival, and sends all
their answers to the client together.
"""

import contextlib
import socket
import struct
import threading

from kafkacore.protocol import apis
from kafkacore.protocol.apis import ApiKey
from kafkacore.protocol.errors import ErrorCode
from kafkacore.protocol.messages import MetadataResponse, ProduceResponse
from wire import receive_exactly

PASS = "pass"
REFUSE = "refuse"  # acts like a leader whose ISR is too small; the broker never sees the request
# The broker appends the records, but the client is informed that the ISR became too small meanwhile.
CONCEAL = "conceal"


class Relay:
    def __init__(self, bootstrap):
        self._broker = bootstrap.rsplit(":", 1)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self._plan, self._sockets, self._threads = {}, [self._listener], []
        self.answers = {}  # by partition: the broker's error codes for the planned requests that reached it

    def __enter__(self):
        self._start(self._accept)
        return self

    def __exit__(self, *_):
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def plan(self, plan):
        self._plan = {partition: list(treatments) for partition, treatments in plan.items()}

    def _start(self, run, *arguments):
        thread = threading.Thread(target=run, args=arguments)
        self._threads.append(thread)
        thread.start()

    def _accept(self):
        with contextlib.suppress(OSError):  # the listener has been closed
            while True:
                client = self._listener.accept()[0]
                broker = socket.create_connection(self._broker, 20)
                self._sockets += [client, broker]
                self._start(self._serve, client, broker)

    def _serve(self, client, broker):
        held = []
        with contextlib.suppress(OSError):  # one side has closed its connection, and the relay closes the other one
            while True:
                frame = receive_frame(client)
                header = apis.decode_request_header(frame)
                planned = self._planned(header, frame)
                if planned is None:
                    client.sendall(sized(self._pass(header, frame, broker)))
                    continue
                held.append((header, frame, *planned))
                if not any(self._plan.values()):
                    client.sendall(b"".join(sized(self._treat(broker, *each)) for each in held))
                    held.clear()
        client.close()
        broker.close()

    def _planned(self, header, frame):
        """Returns the partition of a Produce request and its planned treatment, or None."""
        if header.api_key != ApiKey.PRODUCE or not any(self._plan.values()):
            return None
        ((data,),) = (topic.partition_data for topic in apis.decode_request(header, frame).topic_data)
        treatments = self._plan.get(data.index)
        return (data.index, treatments.pop(0)) if treatments else None

    def _pass(self, header, frame, broker):
        broker.sendall(sized(frame))
        answer = receive_frame(broker)
        if header.api_key == ApiKey.METADATA:
            body = decode(MetadataResponse, header, answer)
            for each in body.brokers:
                each.host, each.port = "127.0.0.1", self.port
            return apis.encode_response(header.api_key, header.api_version, header.correlation_id, body)
        return answer

    def _treat(self, broker, header, frame, partition, treatment):
        if treatment == REFUSE:
            (topic,) = apis.decode_request(header, frame).topic_data
            told = ProduceResponse.PartitionProduceResponse(
                index=partition, base_offset=-1, error_code=ErrorCode.NOT_ENOUGH_REPLICAS
            )
            body = ProduceResponse(responses=[
                ProduceResponse.TopicProduceResponse(
                    name=topic.name, topic_id=topic.topic_id, partition_responses=[told]
                )
            ])  # fmt: skip
        else:
            body = decode(ProduceResponse, header, self._pass(header, frame, broker))
            ((told,),) = (topic.partition_responses for topic in body.responses)
            self.answers.setdefault(partition, []).append(ErrorCode(told.error_code).name)
            if treatment == CONCEAL:
                told.error_code, told.base_offset = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, -1
        return apis.encode_response(header.api_key, header.api_version, header.correlation_id, body)


def receive_frame(connection):
    return receive_exactly(connection, struct.unpack(">i", receive_exactly(connection, 4))[0])


def sized(frame):
    return struct.pack(">i", len(frame)) + frame


def decode(kind, header, answer):
    before = len(apis.response_header(header.api_key, header.api_version, header.correlation_id))
    return kind.decode(answer[before:], header.api_version)
