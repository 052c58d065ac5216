"""Messages as Python objects with slots."""

cdef class Struct:
    """The base of every generated class. `message_class` makes one subclass for each struct of a table."""


cdef class Message(Struct):
    """A struct that is a whole message: it can be decoded and encoded."""
