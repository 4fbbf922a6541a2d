"""Run compiled GPU kernels: PTX parser, threads and memories, tensor-core instructions on any back end."""
