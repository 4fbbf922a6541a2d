"""Sphinx configuration of the web site that ``make site`` builds."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import generate
import playground
import sptc

project = "sptc"
author = project_copyright = "the authors of sptc"
release = version = sptc.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
nb_execution_mode = "off"  # Notebooks are stored with outputs, which a test compares.
html_theme = "furo"
html_title = "sptc"
pygments_dark_style = "monokai"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
myst_heading_anchors = 3
myst_enable_extensions = ["attrs_block", "attrs_inline"]
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "none"
highlight_language = "none"
suppress_warnings = ["ref.python"]  # the word `shape` in a documented type must not link to an attribute


def setup(app: Any) -> None:
    """Write the generated pages before Sphinx reads any page, and the playground at the end of the build."""
    app.connect("builder-inited", lambda app: generate.write(Path(app.srcdir) / "generated"))
    app.connect("build-finished", lambda app, _: playground.write(Path(app.outdir) / playground.NAME))
