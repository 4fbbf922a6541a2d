"""Compiled GPU kernels: PTX text to a program, its threads and memories; tensor-core instructions on any back end."""
