"""Run the command ``sptc`` as ``python -m sptc``."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
