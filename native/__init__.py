"""libsptc, a model of the instructions in C++ with a C interface, and the back end that uses it.

The C++ shares the records of `isa` with the other models, as a generated header, but no arithmetic.
"""
