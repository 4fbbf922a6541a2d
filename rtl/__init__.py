"""RTL of a sparse tensor core in Amaranth: one file per pipeline stage; `cells` has the building blocks of stages."""
