"""A map from each key to the offset at which the key was last written, in bounded memory."""

from typing_extensions import Buffer

class KeyOffsets:
    """An offset map, for cleaner threads and for tests. `seed` consists of 16 random bytes."""

    def __init__(self, budget_bytes: int, load_factor: float, seed: bytes) -> None: ...
    def begin(self, most_keys: int) -> None:
        """Empties the map and allocates the memory for `most_keys` keys, within the memory budget."""

    def release(self) -> None:
        """Frees the memory. `begin` allocates it again."""

    def put(self, key: Buffer, offset: int) -> bool:
        """Sets the offset of a key. Returns False if the map is full."""

    def get(self, key: Buffer) -> int:
        """Returns the key's offset, or -1 if the map does not have the key."""

    def hash_of(self, key: Buffer) -> tuple[int, int]:
        """Returns the 128-bit hash that identifies a key."""

    def __len__(self) -> int: ...
    @property
    def limit(self) -> int:
        """The number of keys that the map accepts."""

    @property
    def memory_bytes(self) -> int: ...
    @property
    def utilization(self) -> float:
        """The number of keys, divided by the number of home slots (Kafka's OffsetMap.utilization)."""
