"""Where the slots of Python classes lie."""

cdef extern from *:
    """
    #include <Python.h>
    #include <structmember.h>
    #ifndef KC_SLOT_OFFSET
    #define KC_SLOT_OFFSET
    static Py_ssize_t kc_slot_offset(PyObject *descriptor) {
        if (!PyObject_TypeCheck(descriptor, &PyMemberDescr_Type)) return -1;
        return ((PyMemberDescrObject *) descriptor)->d_member->offset;
    }
    #endif
    """
    # The offset in an object of the class whose __dict__ has this descriptor; -1: the descriptor is not of a slot.
    Py_ssize_t slot_offset "kc_slot_offset"(object descriptor)
