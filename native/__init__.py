"""libsptc: the instructions once more, in C++ with a C interface, for those who do not use Python; and its back end.

The C++ shares the records of `isa` with the other models, written into a header, and no arithmetic.
"""
