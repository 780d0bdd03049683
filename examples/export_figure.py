"""Figures for a paper: one head's map and the grid of all heads, at the width of a column, and the numbers behind them.

python examples/export_figure.py [folder]
"""

import sys
from pathlib import Path

import attnviz
from attnviz.export import Look, export, figure, pixels

TEXT = "The bank of the river was muddy, so she walked back to the bank in town."
COLUMN = Look("paper", width=pixels("85mm"), dpi=300)


def main(folder: Path = Path()) -> list[Path]:
    trace = attnviz.inspect("minilm", TEXT)
    head = figure(trace, "heatmap", layer=4, head=6)
    heads = figure(trace, "heads")
    return [
        export(head, folder / "head.pdf", look=COLUMN),
        export(head, folder / "head.csv"),
        export(heads, folder / "heads.png", look=COLUMN),
        export(figure(trace, "scaling", layer=4, head=6), folder / "walkthrough.html"),
    ]


if __name__ == "__main__":
    for path in main(*map(Path, sys.argv[1:])):
        print(path)
