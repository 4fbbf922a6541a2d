"""Plant the fault that ``SPTC_PLANT`` names. Python imports this file when it starts, if its folder is on
``PYTHONPATH``.
"""

import planting  # noqa: F401
