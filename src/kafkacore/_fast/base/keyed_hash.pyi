"""SipHash-1-3, the hash of every table whose keys a client may choose."""

def siphash(key: bytes, data: bytes) -> int:
    """SipHash-1-3 of `data` under a key of 16 bytes. Raises ValueError for another size of the key."""
