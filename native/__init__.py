"""libsptc, a C++ model of tensor-core instructions with a C interface, and the Python back end that uses this library.

The C++ code uses the records of `isa`, in a generated header, but no arithmetic of the other models.
"""
