"""Compiles message tables to structs of the type `Shape`. schema.pxd has the contract and explains the terms."""

from libc.stdint cimport int32_t, uint8_t
from libc.stdlib cimport calloc

from struct import pack, unpack

from kafkacore._fast.base.errors import UnsupportedVersionError

cdef dict KINDS = {
    "bool": BOOL, "int8": INT8, "int16": INT16, "uint16": UINT16, "int32": INT32, "int64": INT64, "float64": FLOAT64,
    "uuid": UUID, "string": STRING, "bytes": BYTES, "records": RECORDS, "struct": STRUCT, "array": ARRAY,
}


cdef class Layout:

    def __init__(self, str struct, dict offsets, int32_t size=0, object owner=None, bint sparse=False):
        """If `sparse` is true, the `Shape` omits each field that the version lacks and that has no offset."""
        self.struct = struct
        self.offsets = offsets
        self.size = size
        self.owner = owner
        self.sparse = sparse


cdef void *keep(size_t size) except NULL:
    """Returns zeroed memory that is never freed, because any thread may use a `Shape` at any time. The number of Shapes
    is bounded by the tables."""
    cdef void *block = calloc(1, size if size else 1)
    if block == NULL:
        raise MemoryError()
    return block


cdef dict TEXTS = {}     # text -> its bytes, kept because a name is the same in every version


cdef const char *keep_text(str text) except NULL:
    raw = TEXTS.get(text)
    if raw is None:
        raw = TEXTS[text] = text.encode()
    return <const char *> <bytes> raw


cdef inline bint within(int version, object versions):
    # `versions` is a named tuple. This code uses it as a plain tuple.
    return <int> (<tuple> versions)[0] <= version <= <int> (<tuple> versions)[1]


cdef class Compiler:
    """Compiles one message at one version, for the layouts of one sink."""
    cdef object table
    cdef int version
    cdef bint flexible
    cdef dict layouts
    cdef dict unions        # struct name -> the fields that it has in any version

    def __init__(self, message, int version, dict layouts):
        self.table = message.table(version)
        if self.table is None:
            raise UnsupportedVersionError(
                f"{message.name} has no version {version}; it has {message.versions.lowest} to "
                f"{message.versions.highest}"
            )
        self.version = version
        self.flexible = version in self.table.flexible
        self.layouts = layouts
        self.unions = message.structs()

    cdef const Shape *shape(self, str struct, int depth) except NULL:
        cdef Layout layout = self.layouts[struct]
        cdef Shape *shape = <Shape *> keep(sizeof(Shape))
        if depth > MAX_DEPTH:
            raise ValueError(f"{struct} is nested deeper than {MAX_DEPTH} structs")
        present, tagged = [], []
        for field in self.table.structs[struct]:
            if within(self.version, field.tagged):
                tagged.append(field)
            elif within(self.version, field.versions):
                present.append(field)
        tagged.sort(key=field_tag)
        here = {field.name for field in present} | {field.name for field in tagged}
        absent = [field for field in self.unions[struct] if field.name not in here]
        if layout.sparse:
            absent = [field for field in absent if field.name in layout.offsets]
        shape.name = keep_text(struct)
        shape.flexible = self.flexible
        shape.ops, shape.op_count = self.ops(struct, present, depth), len(present)
        shape.tagged, shape.tagged_count = self.ops(struct, tagged, depth), len(tagged)
        shape.absent, shape.absent_count = self.ops(struct, absent, depth), len(absent)
        shape.size = layout.size
        shape.owner = <void *> layout.owner if layout.owner is not None else NULL
        shape.least = 1 if self.flexible else 0
        cdef int32_t i
        for i in range(shape.op_count):
            shape.least += self.least(&shape.ops[i], shape.ops[i].kind)
        return shape

    cdef const Op *ops(self, str struct, list fields, int depth) except NULL:
        cdef Layout layout = self.layouts[struct]
        cdef Op *ops = <Op *> keep(sizeof(Op) * len(fields))
        cdef Op *op = ops
        order = {field.name: place for place, field in enumerate(self.unions[struct])}
        for field in fields:
            if field.name not in layout.offsets:
                raise ValueError(f"{struct}.{field.name} has no place in the layout for version {self.version}")
            self.fill(op, field, depth)
            op.field = order[field.name]
            op.offset = layout.offsets[field.name]
            op += 1
        return ops

    cdef int fill(self, Op *op, field, int depth) except -1:
        cdef bint tagged = within(self.version, field.tagged)
        cdef bint here = tagged or within(self.version, field.versions)
        op.name = keep_text(field.name)
        op.kind = KINDS[field.kind]
        op.element = KINDS[field.element] if field.element else 0
        op.tag = field.tag if tagged else -1
        # If this version lacks the field, the walk never writes the field's value, but only compares it with the
        # default. So the value may be null.
        if not here or within(self.version, field.nullable):
            op.flags |= NULLABLE
        if self.flexible and not field.never_flexible:
            op.flags |= COMPACT
        if field.ignorable:
            op.flags |= IGNORABLE
        if field.default is None:
            op.flags |= DEFAULT_NULL
        elif field.kind == "float64":
            op.default_int = unpack("q", pack("d", field.default))[0]
        elif op.kind <= FLOAT64:
            op.default_int = field.default
        if op.kind == STRING and field.default:
            op.default_data.data = <const uint8_t *> keep_text(field.default)
            op.default_data.size = <int32_t> len(field.default.encode())
        if op.flags & DEFAULT_NULL:
            op.default_data.size = -1
        if field.struct and (here or field.struct in self.table.structs):
            op.child = self.shape(field.struct, depth + 1)
        if op.kind == ARRAY:
            op.least = self.least(op, op.element)
            if op.least == 0 and here:
                raise ValueError(f"{field.name} {self.version} has elements of 0 bytes, so nothing limits their count")
        return 0

    cdef int32_t least(self, const Op *op, int kind):
        cdef bint compact = op.flags & COMPACT
        if kind <= UUID:
            return fixed_width(kind)
        if kind == STRUCT:
            if op.kind == STRUCT and op.flags & NULLABLE:
                return 1
            return op.child.least if op.child != NULL else 0
        if compact:
            return 1
        return 2 if kind == STRING else 4


def field_tag(field):
    return field.tag


cdef const Shape *compile_message(object message, int version, dict layouts) except NULL:
    """Returns the `Shape` of `message` (tables.Message) at `version`. Raises UnsupportedVersionError, ValueError,
    MemoryError."""
    cdef Compiler compiler = Compiler(message, version, layouts)
    return compiler.shape(message.name, 1)
