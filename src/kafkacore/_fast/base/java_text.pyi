def hash_code(text: str) -> int:
    """Returns Java's `String.hashCode` of the text (over UTF-16 code units) as a signed 32-bit number."""
