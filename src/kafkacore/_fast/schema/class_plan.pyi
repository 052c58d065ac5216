UNKNOWN: str

class Plan:
    """How to make the instances of one generated class."""
