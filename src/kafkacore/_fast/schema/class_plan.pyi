UNKNOWN: str

class Plan:
    """Says how to create instances of one generated class."""
