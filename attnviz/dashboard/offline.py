"""BertViz's own page (Vig 2019, arXiv 1906.05714) made to work without any other server, with tokens as data only.

What BertViz writes loads its libraries from public servers, holds all weights twice, and puts token text into a script.
Here its drawing code stays as it is, its libraries come along, and what it draws is JSON in an element of its own.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from string import Template

from ..errors import DataError

VENDOR = Path(__file__).parent / "vendor"
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'"
"""What the page may do: run its own scripts, and nothing else."""

_DATA = "const params = "
_READ = 'const params = JSON.parse(document.getElementById("params").textContent);'
_SCRIPT = '<script type="text/javascript">'
# BertViz asks require.js for its two libraries
_SHIM = "const require = { config() {} }; const requirejs = (_, start) => start(window.jQuery, window.d3);"
_PAGE = Template("""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>BertViz</title>
<meta http-equiv="Content-Security-Policy" content="$policy">
<style>body { margin: 8px; background: $ground; color: $ink; }</style></head><body>
$body
<script type="application/json" id="params">$params</script>
<script>$jquery</script>
<script>$d3</script>
<script>$shim
$code</script>
</body></html>
""")


def offline(raw: str, *, ground: str = "#ffffff", ink: str = "#000000") -> str:
    """The page made of what `bertviz.head_view(..., html_action="return").data` gives.

    Raises DataError for a version of BertViz that writes something else.
    """
    body, found, script = raw.partition(_SCRIPT)
    start = script.find(_DATA)
    if not found or start < 0 or "</script>" not in body:
        raise DataError("this version of BertViz writes a page that is not known here: install bertviz 1.4")
    line, _, after = script[start:].partition("\n")
    params, _ = json.JSONDecoder().raw_decode(line[len(_DATA) :])
    code = f"{script[:start]}{_READ}\n{after}"
    return _PAGE.substitute(
        policy=POLICY,
        ground=ground,
        ink=ink,
        # what comes before is the tag of a public server
        body=body.partition("</script>")[2],
        params=json.dumps(params, separators=(",", ":")).replace("<", "\\u003c"),
        jquery=_vendor("jquery"),
        d3=_vendor("d3"),
        shim=_SHIM,
        code=code.rpartition("</script>")[0],
    )


@cache
def _vendor(name: str) -> str:
    return (VENDOR / f"{name}.min.js").read_text(encoding="utf-8")
