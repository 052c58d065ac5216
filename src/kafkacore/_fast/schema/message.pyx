"""Messages as Python objects. The class of a message is made from the tables on first use. It has a slot for each field
that any version of the message has."""

cimport cython
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from kafkacore._fast.base.cursor cimport Writer, reader_init, remaining, write_raw, writer_free, writer_init
from kafkacore._fast.schema.object_sink cimport object_sink
from kafkacore._fast.schema.class_plan cimport Plan, fresh, load, new_instance, store
from kafkacore._fast.base.raw_python cimport Py_INCREF, Py_XDECREF
from kafkacore._fast.schema.schema cimport WALK_DONE, WALK_FAILED, WALK_PAUSED, Layout, Shape, Sink, Walk
from kafkacore._fast.schema.walk cimport raise_fault, walk_begin, walk_read, walk_write

from kafkacore._fast.schema import tables
from kafkacore._fast.base.errors import ProtocolError
from kafkacore._fast.schema.class_plan import UNKNOWN

cdef extern from "Python.h":
    int PyGC_Disable()
    int PyGC_Enable()

cdef enum:
    MAX_MESSAGE = 0x7FFFFFFF    # no message is longer, because a frame's size is an int32
    MAX_REQUEST_ELEMENTS = 1000000
    MAX_ELEMENTS = 100000000

cdef const Sink *SINK = object_sink()


@cython.auto_pickle(False)
cdef class Struct:
    """A part of a message. Keyword arguments set fields. The other fields get their defaults."""

    def __init__(self, **values):
        cdef Plan plan = type(self)._plan
        cdef int32_t i, given = 0
        cdef PyObject *value
        cdef PyObject *owner = <PyObject *> self
        for i in range(plan.count):
            name = plan.names[i]
            if values and name in values:
                taken = values[name]
                Py_INCREF(<PyObject *> taken)
                store(owner, plan.offsets[i], <PyObject *> taken)
                given += 1
                continue
            value = fresh(plan, i)
            if value == NULL:
                raise MemoryError()
            store(owner, plan.offsets[i], value)
        if given != len(values):
            unknown = sorted(set(values) - set(plan.names))
            raise TypeError(f"{type(self).__qualname__} has no field {', '.join(unknown)}")

    @property
    def unknown_tagged_fields(self):
        """The tagged fields that the table does not contain: a dict from tag to raw bytes. `decode` keeps these fields
        and `encode` writes them back (KIP-482)."""
        cdef Plan plan = type(self)._plan
        cdef PyObject *kept = load(<PyObject *> self, plan.unknown)
        if kept == NULL:
            made = {}
            Py_INCREF(<PyObject *> made)
            store(<PyObject *> self, plan.unknown, <PyObject *> made)
            return made
        return <object> kept

    @unknown_tagged_fields.setter
    def unknown_tagged_fields(self, dict fields not None):
        cdef Plan plan = type(self)._plan
        Py_INCREF(<PyObject *> fields)
        store(<PyObject *> self, plan.unknown, <PyObject *> fields)

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        for name in (<Plan> type(self)._plan).names:
            if getattr(self, name) != getattr(other, name):
                return False
        return known_unknown(self) == known_unknown(other)

    __hash__ = None

    def __repr__(self):
        cdef Plan plan = type(self)._plan
        shown = []
        for name, usual in zip(plan.names, type(self)._usual()):
            value = getattr(self, name, None)
            if value != usual:
                shown.append(f"{name}={value!r}")
        extra = known_unknown(self)
        if extra:
            shown.append(f"unknown_tagged_fields={extra!r}")
        return f"{type(self).__qualname__}({', '.join(shown)})"

    @classmethod
    def _usual(cls):
        """Returns the defaults of all fields, in the order of the fields."""
        cdef Struct made = cls()
        return [getattr(made, name) for name in (<Plan> cls._plan).names]


cdef dict known_unknown(Struct struct):
    cdef PyObject *kept = load(<PyObject *> struct, (<Plan> type(struct)._plan).unknown)
    return None if kept == NULL or not <object> kept else <dict> kept


@cython.auto_pickle(False)
cdef class Message(Struct):

    @classmethod
    def decode(cls, data, int version, int64_t max_elements=0):
        """Returns the message, which must fill all of `data`. Raises UnsupportedVersionError, and ProtocolError with
        the name of the field.

        `max_elements` limits the total number of array elements and tagged fields in the message. The default is a
        million for a request, because anyone can send a request, and a decoded request takes many times its encoded
        size. For any other message, the default is a hundred million.
        """
        made, used = read_object(cls, data, version, max_elements)
        if used != len(data):
            raise ProtocolError(f"{cls.__qualname__}: {len(data) - used} bytes are left over after version {version}")
        return made

    @classmethod
    def decode_prefix(cls, data, int version):
        """Decodes the start of `data`, such as a header before its body. Returns `(message, bytes used)`. Raises like
        `decode`."""
        return read_object(cls, data, version, 0)

    @classmethod
    def decode_parts(cls, data, int version, int64_t elements=1000, bint prefix=False):
        """Decodes like `decode`, but in short parts, so that the caller can do other work in between. Returns an
        iterator that yields None after every `elements` structs, and finally the message. With `prefix`, bytes may
        follow the message."""
        return Decoding(cls, data, version, elements, prefix)

    def encode(self, int version, const uint8_t[::1] prefix=None):
        """Returns `prefix` and the message in one bytes object. Raises ProtocolError for a value that its type cannot
        hold, and UnsupportedVersionError for a value that `version` cannot carry. Both name the field."""
        cdef const Shape *shape = (<Plan> type(self)._plan).shape(version)
        cdef Walk walk
        cdef Writer writer
        writer_init(&writer, MAX_MESSAGE)
        if prefix is not None and prefix.shape[0]:
            write_raw(&writer, &prefix[0], prefix.shape[0])
        walk.writer = &writer
        walk.budget = -1
        walk.context = NULL
        walk_begin(&walk, SINK, shape, <void *> self)
        try:
            if walk_write(&walk) == WALK_FAILED:
                raise_fault(&walk)
            return (<const char *> writer.data)[:writer.size] if writer.size else b""
        finally:
            writer_free(&writer)

    def encode_parts(self, int version, int64_t elements=1000):
        """Encodes like `encode`, but in short parts. Returns an iterator that yields one bytes object for every
        `elements` structs. The message must not change until the iterator ends."""
        return Encoding(self, version, elements)


cdef tuple read_object(cls, data, int version, int64_t max_elements):
    cdef const uint8_t[::1] view = data
    cdef const Shape *shape = (<Plan> cls._plan).shape(version)
    cdef Walk walk
    cdef PyObject *made
    reader_init(&walk.reader, &view[0] if view.shape[0] else NULL, view.shape[0])
    walk.budget = -1
    walk.room = max_elements if max_elements > 0 else (<Plan> cls._plan).max_elements
    walk.context = NULL
    made = new_instance(shape)
    if made == NULL:
        raise MemoryError()
    owned = <object> made
    Py_XDECREF(made)
    walk_begin(&walk, SINK, shape, made)
    # Pauses the garbage collector. A decode makes no garbage, but collections would take two thirds of the time of a
    # long decode.
    cdef int collecting = PyGC_Disable()
    cdef int outcome = walk_read(&walk)
    if collecting:
        PyGC_Enable()
    if outcome == WALK_FAILED:
        raise_fault(&walk)
    return owned, view.shape[0] - <Py_ssize_t> remaining(&walk.reader)


cdef class Decoding:
    """A decode that pauses between elements."""
    cdef const uint8_t[::1] data
    cdef object made
    cdef Walk walk
    cdef int64_t elements
    cdef bint prefix

    def __init__(self, cls, data, int version, int64_t elements, bint prefix):
        cdef const Shape *shape = (<Plan> cls._plan).shape(version)
        cdef PyObject *made = new_instance(shape)
        if made == NULL:
            raise MemoryError()
        self.made = <object> made
        Py_XDECREF(made)
        self.data = data
        self.walk.room = (<Plan> cls._plan).max_elements
        self.elements = max(1, elements)
        self.prefix = prefix
        reader_init(&self.walk.reader, &self.data[0] if self.data.shape[0] else NULL, self.data.shape[0])
        walk_begin(&self.walk, SINK, shape, made)

    def __iter__(self):
        return self

    def __next__(self):
        if self.made is None:
            raise StopIteration
        made = self.made
        self.walk.budget = self.elements
        cdef int outcome = walk_read(&self.walk)
        if outcome == WALK_PAUSED:
            return None
        self.made = None
        if outcome == WALK_FAILED:
            raise_fault(&self.walk)
        if remaining(&self.walk.reader) and not self.prefix:
            left = remaining(&self.walk.reader)
            raise ProtocolError(f"{type(made).__qualname__}: {left} bytes are left over")
        return made


cdef class Encoding:
    """An encode that pauses between elements. `held` keeps alive the objects that have not been written yet."""
    cdef Walk walk
    cdef Writer writer
    cdef list held
    cdef int64_t elements
    cdef bint done

    def __cinit__(self, Message message, int version, int64_t elements):
        writer_init(&self.writer, MAX_MESSAGE)
        self.held = [message]
        self.elements = max(1, elements)
        self.walk.writer = &self.writer
        self.walk.context = <void *> self.held
        walk_begin(&self.walk, SINK, (<Plan> type(message)._plan).shape(version), <void *> message)

    def __dealloc__(self):
        writer_free(&self.writer)

    def __iter__(self):
        return self

    def __next__(self):
        cdef int outcome = WALK_PAUSED
        if self.done:
            raise StopIteration
        while outcome == WALK_PAUSED:
            self.walk.budget = self.elements
            outcome = walk_write(&self.walk)
            if outcome == WALK_FAILED:
                self.done = True
                raise_fault(&self.walk)
            # The walk is inside a tagged field. The field's bytes cannot be returned yet, because the size in front of
            # them is written last.
            if not self.in_tag():
                break
        self.done = outcome == WALK_DONE
        part = (<const char *> self.writer.data)[:self.writer.size] if self.writer.size else b""
        self.writer.size = 0
        return part

    cdef bint in_tag(self):
        cdef int depth
        for depth in range(self.walk.depth + 1):
            if self.walk.frames[depth].tag_at:
                return True
        return False


cdef dict CLASSES = {}


def message_class(str name):
    """Returns the class of a message. The classes of the message's structs are attributes of this class. Raises
    KeyError if no table has this name."""
    made = CLASSES.get(name)
    if made is None:
        made = CLASSES[name] = build(tables.message(name))
    return made


cdef object build(message):
    cdef Plan plan, root
    structs = message.structs()
    classes, plans, layouts = {}, {}, {}
    for struct, fields in structs.items():
        base = Message if struct == message.name else Struct
        qualname = struct if struct == message.name else f"{message.name}.{struct}"
        classes[struct] = type(struct, (base,), {
            "__slots__": (*[field.name for field in fields], UNKNOWN),
            "__module__": "kafkacore.protocol.messages",
            "__qualname__": qualname,
            "__match_args__": (),
            "FIELDS": tuple([field.name for field in fields]),
        })
    for struct, fields in structs.items():
        plan = Plan(classes[struct], fields)
        plans[struct] = classes[struct]._plan = plan
        offsets = {field.name: plan.offsets[place] for place, field in enumerate(fields)}
        layouts[struct] = Layout(struct, offsets, owner=plan)
    for struct, fields in structs.items():
        plan = plans[struct]
        plan.adopt(fields, plans)
        if struct != message.name:
            setattr(classes[message.name], struct, classes[struct])
    root = plans[message.name]
    root.message, root.layouts = message, layouts
    table = message.tables[0][1]
    root.max_elements = MAX_REQUEST_ELEMENTS if table.kind == "request" else MAX_ELEMENTS
    made = classes[message.name]
    made.NAME, made.API_KEY, made.VERSIONS = message.name, table.api_key, tuple(message.versions)
    made.__doc__ = f"{message.name}, versions {message.versions.lowest} to {message.versions.highest}."
    return made
