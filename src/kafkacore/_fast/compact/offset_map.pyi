"""The offset at which each key was last written, in bounded memory."""

from typing_extensions import Buffer

class KeyOffsets:
    """An offset map for a cleaner thread and for tests. `seed` is 16 random bytes."""

    def __init__(self, budget_bytes: int, load_factor: float, seed: bytes) -> None: ...
    def begin(self, most_keys: int) -> None:
        """Empties the map, and allocates the memory for `most_keys` keys, within the budget."""

    def release(self) -> None:
        """Frees the memory; `begin` allocates it again."""

    def put(self, key: Buffer, offset: int) -> bool:
        """Returns False when the map is full."""

    def get(self, key: Buffer) -> int:
        """The key's offset; -1 when it has none."""

    def hash_of(self, key: Buffer) -> tuple[int, int]:
        """The 128-bit hash that identifies a key."""

    def __len__(self) -> int: ...
    @property
    def limit(self) -> int:
        """How many keys fit."""

    @property
    def memory_bytes(self) -> int: ...
    @property
    def utilization(self) -> float:
        """The share of all slots that is used, as Kafka computes it."""
