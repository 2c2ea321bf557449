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
from t3d.base.errors import CannotWrite


def write_page(out: Path, page: str, data: dict[str, Any]) -> Path:
    """Write a page of t3d/show/pages with its data; returns where."""
    whole = page_text(page, data)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        files.replace(out, whole.encode(errors="replace"))
    except OSError as error:
        raise CannotWrite(f"{out} cannot be written: {error.strerror or error}") from error
    return out


def page_text(page: str, data: dict[str, Any]) -> str:
    """A page as one text."""
    parts = resources.files("t3d.show") / "pages"

    def ours(*names: str) -> Markup:
        return Markup("\n".join((parts / name).read_text(encoding="utf-8") for name in names))

    pages = jinja2.Environment(loader=jinja2.PackageLoader("t3d.show", "pages"), autoescape=True)
    return pages.get_template(f"{page}.html").render(
        title=data["title"],
        style=ours("page.css"),
        script=ours("draw.js", f"{page}.js"),
        data=Markup(as_json(data)),
    )


def as_json(data: dict[str, Any]) -> str:
    """Data for a script: only "<" could end that, so as an escape no name in the data can."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def numbers(array: Any) -> Any:
    """An array as nested lists of as few digits as give the same float32 again."""
    found = np.asarray(array, np.float32)
    if found.ndim == 0:
        return float(str(found))
    return [numbers(part) for part in found]


def packed(array: Any) -> dict[str, Any]:
    """An array of float32, whole, in base64."""
    found = np.ascontiguousarray(array, "<f4")
    return {"shape": list(found.shape), "base64": base64.b64encode(found.tobytes()).decode()}
