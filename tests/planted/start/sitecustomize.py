"""Python imports this file when it starts, if its folder is on ``PYTHONPATH``."""

import planting  # noqa: F401
