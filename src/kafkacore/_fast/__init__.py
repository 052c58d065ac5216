"""Native code that runs without the GIL. Each `.pxd` is a contract; the Python faces are what tests drive."""
