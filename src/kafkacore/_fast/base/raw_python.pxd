"""Python's C API with raw pointers, for native code whose caller holds the GIL. Cython neither counts references nor
checks for exceptions in these calls.
"""

from cpython.object cimport PyObject

cdef extern from "Python.h" nogil:
    PyObject *Py_None
    PyObject *Py_True
    PyObject *Py_False
    PyObject *PyExc_TypeError
    PyObject *PyExc_OverflowError
    void Py_INCREF(PyObject *)
    void Py_XDECREF(PyObject *)
    PyObject *PyErr_Occurred()
    PyObject *PyErr_Format(PyObject *, const char *, ...)
    PyObject *PyLong_FromLongLong(long long)
    long long PyLong_AsLongLong(PyObject *)
    PyObject *PyFloat_FromDouble(double)
    double PyFloat_AsDouble(PyObject *)
    bint PyLong_Check(PyObject *)
    PyObject *PyUnicode_DecodeUTF8(const char *, Py_ssize_t, const char *)
    const char *PyUnicode_AsUTF8AndSize(PyObject *, Py_ssize_t *)
    bint PyUnicode_Check(PyObject *)
    PyObject *PyBytes_FromStringAndSize(const char *, Py_ssize_t)
    char *PyBytes_AS_STRING(PyObject *)
    Py_ssize_t PyBytes_GET_SIZE(PyObject *)
    bint PyBytes_Check(PyObject *)
    PyObject *PyList_New(Py_ssize_t)
    bint PyList_Check(PyObject *)
    Py_ssize_t PyList_GET_SIZE(PyObject *)
    PyObject *PyList_GET_ITEM(PyObject *, Py_ssize_t)
    int PyList_SetItem(PyObject *, Py_ssize_t, PyObject *)
    int PyList_Append(PyObject *, PyObject *)
    bint PyTuple_Check(PyObject *)
    Py_ssize_t PyTuple_GET_SIZE(PyObject *)
    PyObject *PyTuple_GET_ITEM(PyObject *, Py_ssize_t)
    ctypedef struct PyTypeObject:
        const char *tp_name
        PyObject *(*tp_alloc)(PyTypeObject *, Py_ssize_t) noexcept
    PyTypeObject *Py_TYPE(PyObject *)
    bint PyObject_TypeCheck(PyObject *, PyTypeObject *)
    ctypedef struct Py_buffer:
        void *buf
        Py_ssize_t len
    int PyBUF_SIMPLE
    int PyObject_GetBuffer(PyObject *, Py_buffer *, int)
    void PyBuffer_Release(Py_buffer *)
