"""Configures Sphinx: ``make docs`` writes the manual to build/docs, and a warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

project = "Harbourmaster"
author = "The Harbourmaster authors"
extensions = ["myst_parser", "sphinx_copybutton", "manual"]
exclude_patterns = ["_ext", "_static"]
nitpicky = True

myst_enable_extensions = ["colon_fence", "deflist"]
# As hosts of Git repositories name them, so that a link works there and here.
myst_heading_anchors = 4

html_theme = "furo"
html_title = "Harbourmaster"
html_static_path = ["_static"]
html_css_files = ["manual.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
# Only commands have a prompt; what they print is nothing to copy.
copybutton_prompt_text = "$ "
copybutton_selector = "div.highlight-sh pre, div.highlight-console pre, div.highlight-yaml pre"
