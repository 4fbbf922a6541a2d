"""Plant the fault that ``SPTC_PLANT`` names. Python imports this file at its start if it is on ``PYTHONPATH``."""

import planting  # noqa: F401
