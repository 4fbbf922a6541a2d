"""Area and delay of synthesised netlists, with tables and plots."""
