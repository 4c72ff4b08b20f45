"""Pages made from templates that lie beside the module that fills them in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jinja2


def render(template: Path, **values: Any) -> str:
    """A template filled in; all text is escaped, and a value that is missing is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(template.parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template.name).render(**values)
