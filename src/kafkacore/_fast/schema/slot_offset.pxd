"""Finds the offsets of the slots of Python classes."""

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
    # Returns the offset of a slot in the instances of a class. `descriptor` is the slot's entry in the class's
    # __dict__. Returns -1 if `descriptor` does not belong to a slot.
    Py_ssize_t slot_offset "kc_slot_offset"(object descriptor)
