"""The rules of LogValidator without the GIL. `validator` has the Python interface."""
