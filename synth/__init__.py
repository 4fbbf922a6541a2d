"""Netlists to area, delay, tables and pictures."""
