"""Conversion of instructions, datapaths, trace steps and results to text, JSON values and pictures."""
