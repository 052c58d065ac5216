def read_offset(value: bytes) -> tuple[int, int, str, int, int, bytes] | None:
    """Reads an OffsetCommitValue with its version in front. Returns offset, leader epoch, metadata, commit timestamp,
    expire timestamp (-1 for none) and topic id (zeros for none). Returns None for any other value: another version,
    other tagged fields, or bytes that cannot be read."""
