"""The figures for a paper are as wide as a column and hold the model's numbers."""

import importlib.util
from io import BytesIO
from pathlib import Path

import pandas as pd
import pypdf
import pytest
from PIL import Image

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "export_figure.py"


@pytest.mark.usefixtures("minilm")
def test_export_figure(tmp_path):
    spec = importlib.util.spec_from_file_location("example_export_figure", EXAMPLE)
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    head, numbers, heads, walkthrough = example.main(tmp_path)
    assert float(pypdf.PdfReader(BytesIO(head.read_bytes())).pages[0].mediabox.width) == pytest.approx(
        85 / 25.4 * 72, abs=0.1
    )
    assert Image.open(BytesIO(heads.read_bytes())).width == pytest.approx(85 / 25.4 * 300, abs=1)
    table = pd.read_csv(numbers, keep_default_na=False)
    assert table.groupby("row")["weight"].sum().tolist() == pytest.approx([1.0] * 20, abs=1e-5)
    assert "Content-Security-Policy" in walkthrough.read_text(encoding="utf-8")
