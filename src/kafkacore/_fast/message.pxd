"""The object sink: messages as Python objects with slots. The GIL is held through every walk."""

cdef class Struct:
    """Base of every generated class. Subclasses are made by `message_class`, one for each struct of a table."""


cdef class Message(Struct):
    """A struct that is a whole message: it can be decoded and encoded."""
