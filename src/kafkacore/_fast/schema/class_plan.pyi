UNKNOWN: str

class Plan:
    """Describes how to create instances of one generated class. Only native code uses its content."""
