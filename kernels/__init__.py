"""Run compiled GPU kernels: parse PTX, simulate threads and memories, run tensor-core instructions on a back end."""
