"""A stub of the data client's connection to a broker."""

import socket

from kafkacore.client.connection import Answer, Disconnected


class Line:
    """A connection whose broker is the socket `far`. Each byte that arrives is the response to a request."""

    place = "h:1"
    has_buffered = False

    def __init__(self):
        self.near, self.far = socket.socketpair()
        self.fileno = self.near.fileno
        self.sent = 0

    @property
    def is_open(self):
        return self.near.fileno() >= 0

    def send(self, message, version, deadline):
        self.sent += 1
        return self.sent

    def receive(self):
        got = self.near.recv(1)
        if not got:
            raise Disconnected("closed")
        return Answer(got[0], "response")

    def close(self):
        self.near.close()
        self.far.close()
