"""SipHash-1-3, the hash of every table whose keys a client can choose."""

def siphash(key: bytes, data: bytes) -> int:
    """Returns the SipHash-1-3 of `data` under `key`. Raises ValueError unless `key` has 16 bytes."""
