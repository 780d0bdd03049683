"""A chart as one HTML file that works offline, asks no server for anything, and lets no token become markup.

The chart is data inside a script element of type application/json, where "<" is written as an escape; the only script
that the page's policy lets run is the one whose hash it names.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import lru_cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

_DRAW = """
vegaEmbed("#chart", JSON.parse(document.getElementById("spec").textContent), {
  ast: true,
  renderer: "svg",
  actions: { export: true, source: false, compiled: false, editor: false },
});
"""


def page(spec: dict[str, Any]) -> str:
    """The HTML of a Vega-Lite spec; its title and description become the page's."""
    script = _script()
    config = spec.get("config", {})
    return Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8")).substitute(
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=escape(_title(spec.get("title"))),
        caption=escape(spec.get("description", "")),
        scheme=_scheme(str(config.get("background", "#ffffff"))),
        background=_style(config.get("background", "#ffffff")),
        text=_style(config.get("title", {}).get("color", "#000000")),
        muted=_style(config.get("axis", {}).get("titleColor", "#555555")),
        font=_style(config.get("font", "sans-serif")),
        spec=_inside_script(spec),
        script=script,
    )


def _title(title: Any) -> str:
    """The words of a Vega-Lite title, which may be text, or text and subtitle."""
    words = (title.get("text", ""), title.get("subtitle", "")) if isinstance(title, dict) else (title or "attnviz",)
    return " · ".join(" ".join(word) if isinstance(word, list) else str(word) for word in words if word)


def _scheme(background: str) -> str:
    """Whether sliders and lists are to be light or dark, as the page is, or as the reader has it where that is not told
    by the colour."""
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", background):
        return "light dark"
    return "light" if sum(bytes.fromhex(background[1:])) > 3 * 127 else "dark"


def _style(value: str) -> str:
    """A colour or a list of fonts that cannot end the rule it stands in."""
    return re.sub(r"[^\w #%,.()-]", "", value)


def _inside_script(value: Any) -> str:
    """JSON that cannot close the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@lru_cache(maxsize=1)
def _script() -> str:
    """Vega, Vega-Lite and Vega-Embed, and the call that draws the chart."""
    import vl_convert

    bundle: str = vl_convert.javascript_bundle(_DRAW)
    return bundle.replace("</script", "<\\/script")
