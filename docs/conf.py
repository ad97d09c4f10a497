"""The documentation: Sphinx, MyST-NB for pages and notebooks, tables and galleries generated from the records."""

import sys
from pathlib import Path

import tcsim

sys.path.insert(0, str(Path(__file__).parent))
from generate import escaped, generate

project = "tcsim"
author = "tcsim developers"
copyright = "tcsim developers, BSD 3-Clause"
version = release = tcsim.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "numpydoc"]
exclude_patterns = ["_build", "**.ipynb_checkpoints"]
myst_enable_extensions = ["colon_fence", "deflist"]  # no dollarmath: its formulas would be drawn by a script from elsewhere
myst_heading_anchors = 3
nb_execution_mode = "off"  # notebooks keep the outputs that they were committed with; CI runs them with nbmake
suppress_warnings = ["mystnb.unknown_mime_type"]

autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "tcsim"
html_static_path = ["_static"]
html_css_files = ["tcsim.css"]
html_js_files = ["larger.js"]
html_show_sourcelink = False
_WIDE = (
    "what-if",
    "_generated/units",
    "_generated/formats",
    *(f"howto/{p.stem}" for p in Path(__file__).parent.glob("howto/*.md")),
)
_ALONE = (  # without the section's list at the left, which would leave no room for their lines
    *("index", "install", "tour", "what-if", "how-we-know", "_generated/gallery", "_generated/formats", "_generated/units"),
    *("_generated/cli", "reference/examples", "reference/modules"),
)
html_sidebars = {page: [] for page in _ALONE}
html_theme_options = {
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "secondary_sidebar_items": {"**": ["page-toc"], **{page: [] for page in _WIDE}},
    "footer_start": ["copyright"],
    "footer_end": [],
}


def setup(app):
    generate(Path(__file__).parent)
    app.connect("autodoc-process-docstring", lambda app, what, name, obj, options, lines: escaped(lines), priority=1)
