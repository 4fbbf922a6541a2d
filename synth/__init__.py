"""Area and delay of netlists, with tables and plots."""
