"""How the site is made: ``make site``; Sphinx reads this file."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generate
import sptc

project = "sptc"
author = "the authors of sptc"
release = version = sptc.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["requirements.txt"]
nb_execution_mode = "off"  # they hold what they showed when they were executed, and a test compares
html_theme = "furo"
html_title = "sptc"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block", "attrs_inline"]
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "none"
highlight_language = "none"
nitpicky = False


def setup(app: Any) -> None:
    """Write the pages that are made from the code before any page is read."""
    app.connect("builder-inited", lambda app: generate.write(Path(app.srcdir) / "generated"))
