def hash_code(text: str) -> int:
    """Java's `String.hashCode` over UTF-16 units, as a signed 32-bit number."""
