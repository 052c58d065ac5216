"""Which offset each key was last written at, in bounded memory."""

from typing_extensions import Buffer

class KeyOffsets:
    """An offset map of its own, for a cleaner thread and for tests. `seed` is 16 random bytes."""

    def __init__(self, budget_bytes: int, load_factor: float, seed: bytes) -> None: ...
    def begin(self, most_keys: int) -> None:
        """Forgets everything, and takes the memory that so many keys need, within its budget."""

    def release(self) -> None:
        """Gives the memory back; `begin` takes it again."""

    def put(self, key: Buffer, offset: int) -> bool:
        """False: the map is full."""

    def get(self, key: Buffer) -> int:
        """The key's offset; -1 when it has none."""

    def hash_of(self, key: Buffer) -> tuple[int, int]:
        """The 128 bits that a key is known by."""

    def __len__(self) -> int: ...
    @property
    def limit(self) -> int:
        """How many keys fit."""

    @property
    def memory_bytes(self) -> int: ...
    @property
    def utilization(self) -> float:
        """Kafka's: of all slots, not of those that may be used."""
