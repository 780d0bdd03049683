"""The texts of every error, read from the source, for the pages of docs/errors; `scripts/reference` writes them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "errors"
HEADING = "## Every text"


def pages() -> dict[str, str]:
    """Name of each page and its whole text: what people wrote, then the texts of the class."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "attnviz").rglob("*.py"):
        for name, text in texts(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(name, set()).add(text)
    return {path.name: page(path, found[path.stem]) for path in PAGES.glob("*Error.md")}


def page(path: Path, raised: set[str]) -> str:
    """The page of one class."""
    start = path.read_text(encoding="utf-8").partition(HEADING)[0].rstrip()
    lines = [f"- `{text}`" for text in sorted(raised, key=lambda text: text.lstrip("… "))]
    return "\n".join([start, "", HEADING, "", "… stands for a value.", "", *lines, ""])


def texts(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Class and text of every error that is made, values as …; those that pass on another text are left out."""
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id.endswith("Error")
            and node.args
        ):
            text = " ".join(said(node.args[0]).replace("`", "'").split())
            if text.strip("… "):
                yield node.func.id, text


def said(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
    return said(node.left) + said(node.right) if isinstance(node, ast.BinOp) else "…"


def main() -> None:
    """Write the list of texts into every page."""
    for name, text in pages().items():
        (PAGES / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
