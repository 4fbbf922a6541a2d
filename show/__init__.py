"""Instructions, datapaths, steps and results as text, as JSON values and as pictures."""
