"""The notebooks run from top to bottom without a network, and are kept without what they printed."""

import base64
import json
import os
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbformat: pip install nbclient ipykernel")
nbclient = pytest.importorskip("nbclient", reason="needs nbclient: pip install nbclient ipykernel")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


@pytest.fixture(scope="module")
def ran(minilm, smollm2, tmp_path_factory):
    """For each notebook, run once in a fresh process: what its outputs show as HTML, and what they print."""
    return {path.stem: run(path, tmp_path_factory.mktemp(path.stem)) for path in NOTEBOOKS}


def run(path, folder):
    notebook = nbformat.read(path, as_version=4)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(folder)}})
    client.execute(env={**os.environ, "OMP_NUM_THREADS": "1"})
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert list(folder.iterdir()) == []
    assert [output["text"] for output in outputs if output.get("name") == "stderr"] == []
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    return [output["data"]["text/html"] for output in outputs if "text/html" in output.get("data", {})], printed


def svg(html):
    return base64.b64decode(html.partition("base64,")[2].partition('"')[0]).decode()


@pytest.mark.slow
def test_first_look(ran):
    shown, printed = ran["first_look"]
    grid, _, previous, links, strongest, paths = shown
    assert "6 layers, 72 heads, 18 tokens" in grid
    assert "Layer 0, head 2" in svg(previous)
    assert "doctor" in svg(links)
    assert "doctor" in strongest
    assert "<th>score</th>" in paths
    assert "head.pdf has" in printed


@pytest.mark.slow
def test_what_a_head_does(ran):
    shown, printed = ran["what_a_head_does"]
    grid, likely, effects, head, links = shown
    assert "30 layers, 270 heads, 10 tokens" in grid
    assert "The capital of France is Paris" in printed
    assert "<th>importance</th>" in likely
    assert "<th>change</th>" in effects
    assert "<svg" in svg(head)
    assert "France" in svg(links)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_kept_without_outputs_and_is_tested(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert not any(cell.get("outputs") or cell.get("execution_count") for cell in cells)
    assert f"test_{path.stem}" in globals()


@pytest.mark.browser
@pytest.mark.slow
def test_two_notebooks_on_one_page(ran, browser):
    """All they show, side by side in one page that asks for nothing."""
    shown = [html for outputs, _ in ran.values() for html in outputs]
    page, asked = browser.new_page(), []
    page.on("request", lambda request: asked.append(request.url))
    page.set_content("".join(shown))
    widths = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
    page.close()
    assert len(widths) == 6
    assert min(widths) > 100
    assert [url for url in asked if not url.startswith("data:")] == []
