"""Pages that are one file: style, script and data inside, nothing fetched."""

import base64
import json
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from t3d.base import files
from t3d.base.errors import BadInput


def write_page(out: Path, page: str, data: dict[str, Any]) -> Path:
    """Write a page of t3d/show/pages with its data; returns the file."""
    text = page_text(page, data)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise files.cannot_write(out, error) from error
    files.save(out, text.encode(errors="replace"))
    return out


def page_text(page: str, data: dict[str, Any]) -> str:
    """A page as one text."""
    parts = resources.files("t3d.show") / "pages"

    def trusted(*names: str) -> Markup:
        return Markup("\n".join((parts / name).read_text(encoding="utf-8") for name in names))

    pages = jinja2.Environment(loader=jinja2.PackageLoader("t3d.show", "pages"), autoescape=True)
    return pages.get_template(f"{page}.html").render(
        title=data["title"],
        style=trusted("page.css"),
        script=trusted("draw.js", f"{page}.js"),
        data=Markup(as_json(data)),
    )


def as_json(data: dict[str, Any]) -> str:
    """Data for a script tag. Only "<" could end the tag; escaped, no name in the data can."""
    try:
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    except ValueError as error:
        raise BadInput("the page cannot be made: some of its numbers are not finite") from error
    return text.replace("<", "\\u003c")


def numbers(array: Any) -> Any:
    """An array as nested lists, with as few digits as give the same float32 again."""
    values = np.asarray(array, np.float32)
    if values.ndim == 0:
        return float(str(values))
    return [numbers(part) for part in values]


def packed(array: Any) -> dict[str, Any]:
    """A float32 array in base64."""
    values = np.ascontiguousarray(array, "<f4")
    return {"shape": list(values.shape), "base64": base64.b64encode(values.tobytes()).decode()}
