"""Messages as Python objects with slots."""

cdef class Struct:
    """Base of every generated class. Subclasses are made by `message_class`, one for each struct of a table."""


cdef class Message(Struct):
    """A struct that is a whole message: it can be decoded and encoded."""
