"""Native code that runs without the GIL. Each `.pxd` file is a contract. Python code and tests use the modules through
their Python interfaces, which the `.pyi` files describe.
"""
