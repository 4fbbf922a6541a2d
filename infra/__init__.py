"""Beside the floors, and nothing of tensor cores: processes, folders that are resumed, files, tools that are run."""
