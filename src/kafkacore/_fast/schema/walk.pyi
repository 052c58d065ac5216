"""Nothing of the walker is for Python: it is driven through messages, views and columns."""
