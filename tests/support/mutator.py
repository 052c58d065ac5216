"""Turns recorded requests into invalid ones. It flips bits, changes lengths, and splices and truncates frames."""

import random
import struct
from pathlib import Path

INTERESTING_I32 = (-1, -2, 0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, -0x80000000, 1 << 20, 100 << 20, 101 << 20)
INTERESTING_BYTES = (0, 1, 0x7F, 0x80, 0xFF)
LONGEST_VARINT = b"\xff" * 9 + b"\x7f"
MUTATIONS_AT_ONCE = 4


def frames(path):
    """Returns the requests in one corpus file without their length prefixes."""
    data, found = Path(path).read_bytes(), []
    while data:
        (size,) = struct.unpack(">i", data[:4])
        found.append(data[4 : 4 + size])
        data = data[4 + size :]
    return found


class Mutator:
    """Makes invalid requests. The seed decides the whole sequence. `request()` returns the bytes to send, whose length
    prefix may be wrong."""

    def __init__(self, corpus, seed):
        self.seeds = [frame for path in sorted(Path(corpus).glob("*.bin")) for frame in frames(path)]
        assert self.seeds, f"no recorded dialogues in {corpus}"
        self.random = random.Random(seed)

    def request(self):
        """Returns bytes to send. In most cases they are a frame with a correct length and an invalid body."""
        body = bytearray(self.random.choice(self.seeds))
        for _ in range(self.random.randint(1, MUTATIONS_AT_ONCE)):
            self.random.choice(self.MUTATIONS)(self, body)
        return self.length(body) + bytes(body)

    def sound(self):
        """Returns an unchanged request. It creates state that the invalid requests can then damage, such as a fetch
        session or a topic."""
        frame = self.random.choice(self.seeds)
        return struct.pack(">i", len(frame)) + frame

    def length(self, body):
        if self.random.random() < 0.9:
            return struct.pack(">i", len(body))
        lie = self.random.choice((*INTERESTING_I32, len(body) - 1, len(body) + 1, len(body) * 2))
        return struct.pack(">i", lie)

    def position(self, body, width=1):
        return self.random.randrange(max(1, len(body) - width + 1))

    def flip_bits(self, body):
        for _ in range(self.random.randint(1, 8)):
            if body:
                body[self.position(body)] ^= 1 << self.random.randrange(8)

    def overwrite_byte(self, body):
        if body:
            body[self.position(body)] = self.random.choice(INTERESTING_BYTES)

    def overwrite_i32(self, body):
        at = self.position(body, 4)
        body[at : at + 4] = struct.pack(">i", self.random.choice(INTERESTING_I32))

    def overwrite_varint(self, body):
        at = self.position(body)
        body[at : at + 1] = self.random.choice((LONGEST_VARINT, b"\xff\xff\xff\xff\x0f", b"\x80\x00", b"\x00"))

    def cut(self, body):
        del body[self.position(body) :]

    def remove(self, body):
        at = self.position(body)
        del body[at : at + self.random.randint(1, 16)]

    def insert(self, body):
        at = self.position(body)
        body[at:at] = self.random.randbytes(self.random.randint(1, 64))

    def repeat(self, body):
        at = self.position(body)
        piece = body[at : at + self.random.randint(1, 32)]
        body[at:at] = piece * self.random.randint(1, 20)

    def splice(self, body):
        other = self.random.choice(self.seeds)
        body[self.position(body) :] = other[self.random.randrange(len(other)) :]

    def other_api(self, body):
        body[0:2] = struct.pack(">h", self.random.choice((*range(90), -1, 1000, 32767)))

    def other_version(self, body):
        body[2:4] = struct.pack(">h", self.random.randint(-1, 20))

    def random_bytes(self, body):
        body[8:] = self.random.randbytes(self.random.randint(0, 200))

    MUTATIONS = (
        flip_bits, overwrite_byte, overwrite_i32, overwrite_varint, cut, remove, insert, repeat, splice, other_api,
        other_version, random_bytes,
    )  # fmt: skip
