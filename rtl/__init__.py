"""RTL of a sparse tensor core in Amaranth: one file per pipeline stage. The folder `cells` has smaller components."""
