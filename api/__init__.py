"""The front door: instructions as functions, their checks, and the choice of a back end."""
