def read_offset(value: bytes) -> tuple[int, int, str, int, int, bytes] | None:
    """Offset, leader epoch, metadata, commit timestamp, expire timestamp (-1: none), topic id (zeros: none) of an
    OffsetCommitValue with its version before it. None for any other value: another version, other tagged fields,
    or bytes that cannot be read."""
