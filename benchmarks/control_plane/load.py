"""Keeps requests waiting at a broker. A separate process sends them on many connections.

    with Load(address, 100, [frame]) as load:
        with load.running():
            ...                       # each of the 100 connections sends its next request as soon as it has an answer

The constructor opens the connections. They stay idle until the load runs. A broker handles one request of each
connection at a time. Each connection has `AHEAD` requests in flight, so that the broker already has the next request
even if a busy machine keeps this process waiting.
"""

import contextlib
import json
import select
import socket
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
# After every 40 connections, the load pauses, because the backlog of a listening socket has only 50 places.
ACCEPTED, ACCEPTING_S = 40, 0.02
END_S = 60.0
AHEAD = 4


class Load:
    """A load of many connections. The constructor deals out `frames` to the connections in turn. Each connection sends
    its frame again and again.
    """

    def __init__(self, address, connections, frames):
        command = [sys.executable, "-m", "benchmarks.control_plane.load", address, str(connections)]
        self._process = subprocess.Popen(
            [*command, *(frame.hex() for frame in frames)],
            cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        self._expect("connected")
        self.answered = self.elapsed_s = 0.0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(END_S)
        self._process.stdout.close()

    @contextlib.contextmanager
    def running(self):
        """Starts the load, and waits until each connection has received an answer. By then the broker has a backlog. On
        exit, waits until the broker has answered every request."""
        self._say("go")
        self._expect("loaded")
        try:
            yield self
        finally:
            self._say("stop")
            told = json.loads(self._process.stdout.readline())
            self.answered, self.elapsed_s = told["answered"], told["elapsed_s"]

    @property
    def rate(self):
        """Returns the number of answers per second in the last run."""
        return self.answered / self.elapsed_s

    def _say(self, word):
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()

    def _expect(self, word):
        line = self._process.stdout.readline().strip()
        if line != word:
            raise RuntimeError(f"the process of the load printed {line!r} instead of {word!r}")


class Connections:
    """The process behind `Load`. It watches all connections with one epoll object."""

    def __init__(self, address, count, frames):
        host, port = address.rsplit(":", 1)
        self.links, self.frames = {}, {}
        self.poll = select.epoll()
        for number in range(count):
            if number % ACCEPTED == 0:
                time.sleep(ACCEPTING_S)
            link = socket.create_connection((host, int(port)))
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.links[link.fileno()] = link
            self.frames[link.fileno()] = frames[number % len(frames)]
            self.poll.register(link, select.EPOLLIN)
        self.poll.register(sys.stdin, select.EPOLLIN)
        self.under_way = dict.fromkeys(self.links, 0)  # the number of requests in flight
        self.left = dict.fromkeys(self.links, -1)  # bytes of the answer still to come; -1 if its size is unknown
        self.heads = dict.fromkeys(self.links, b"")
        self.answered = 0

    def run(self):
        print("connected", flush=True)
        while sys.stdin.readline() == "go\n":
            self._turn()

    def _turn(self):
        began, self.answered = time.perf_counter(), 0
        fresh, going = set(self.links), True
        for number in self.links:
            self._ask(number, AHEAD)
        while any(self.under_way.values()):
            for number, _ in self.poll.poll():
                if number == sys.stdin.fileno():
                    sys.stdin.readline()
                    going = False
                    continue
                answers = self._received(number)
                self.under_way[number] -= answers
                self.answered += answers
                if answers and number in fresh:
                    fresh.discard(number)
                    if not fresh:
                        print("loaded", flush=True)
                if answers and going:
                    self._ask(number, answers)
        print(json.dumps({"answered": self.answered, "elapsed_s": time.perf_counter() - began}), flush=True)

    def _ask(self, number, count):
        self.links[number].sendall(self.frames[number] * count)
        self.under_way[number] += count

    def _received(self, number):
        """Reads from a connection. Returns how many answers are now complete."""
        data = self.heads[number] + self.links[number].recv(1 << 18)
        if not data:
            raise ConnectionError("the broker closed a connection of the load")
        answers, left = 0, self.left[number]
        while data:
            if left < 0:
                if len(data) < 4:
                    break
                left = 4 + int.from_bytes(data[:4], "big")
            taken = min(left, len(data))
            data, left = data[taken:], left - taken
            if left == 0:
                answers, left = answers + 1, -1
        self.heads[number], self.left[number] = data, left
        return answers


def main():
    address, count, *frames = sys.argv[1:]
    Connections(address, int(count), [bytes.fromhex(each) for each in frames]).run()


if __name__ == "__main__":
    main()
