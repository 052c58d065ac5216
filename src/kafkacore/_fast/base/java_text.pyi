def hash_code(text: str) -> int:
    """`String.hashCode` of Java: of UTF-16 units, a signed 32-bit number."""
