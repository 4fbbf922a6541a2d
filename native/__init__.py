"""libsptc, a C++ model of tensor-core instructions with a C interface, and the Python back end that uses this library.

The C++ shares the records of `isa` with the other models, as a generated header, but no arithmetic.
"""
