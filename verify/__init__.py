"""One model against another: register files, stimulus, replay, campaigns, and what a mismatch is shrunk to."""
