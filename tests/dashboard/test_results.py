"""Every figure that an analysis offers, page by page: as a file in every format, and by the lines under it.

The lines of Python and the command are run and must write the very file that the button gives.
"""

import csv
import importlib
import json
import shlex

import pytest
import torch
from dashboard.models import cross_trace, write_models, write_pair

from attnviz.cli.entry import run
from attnviz.dashboard import results
from attnviz.dashboard.coreference import EXAMPLE
from attnviz.dashboard.dependencies import EXAMPLE as SENTENCES
from attnviz.dashboard.shell import PAGES

START = {
    "svg": b"<svg",
    "png": b"\x89PNG",
    "pdf": b"%PDF",
    "html": b"<!doctype html>",
    "json": b"[{",
    "parquet": b"PAR1",
}
MARKED = "[the cat]1 sat . [the cat]1 sat ."
SECOND = "the cat ."
TWO = "the cats sat . the cat sat ."

OFFERED = [
    ("heads", {"by": "Induction"}, ["heads"]),
    ("compare", {}, ["difference", "distances"]),
    ("compare", {"mode": "Two texts", "text2": TWO}, ["difference", "distances"]),
    ("compare", {"mode": "Two models", "model2": "llama"}, ["difference", "distances"]),
    ("compare", {"model": "t5", "kind": "encoder", "layer2": "0", "head2": "1"}, ["difference", "distances"]),
    ("causes", {"method": "Rollout"}, ["causes-rollout"]),
    ("causes", {"method": "Rollout", "model": "t5", "kind": "encoder"}, ["causes-rollout"]),
    ("causes", {"method": "Relevance", "model": "llama"}, ["causes-relevance"]),
    ("causes", {"method": "This head", "how": "its mean"}, ["causes-this-head"]),
    ("causes", {"method": "Every head"}, ["causes-every-head"]),
    ("causes", {"method": "Each token", "model": "llama"}, ["causes-each-token"]),
    ("coreference", {"marked": MARKED}, ["coreference-arcs", "coreference"]),
    ("dependencies", {"relation": "det"}, ["dependency-arcs", "dependencies"]),
    ("alignment", {"model": "t5", "translation": "the cats sat", "gold": "1-1 0p0"}, [
        "alignment-matrix", "alignment-links", "alignment"]),
    ("alignment", {"model": "t5", "translation": "the cats sat"}, ["alignment-matrix", "alignment-links"]),
    ("alignment", {"model": "numbers.attn", "gold": "1-1 0p0", "which": "Mutual only", "moment": "Row of the word"}, [
        "alignment-matrix", "alignment-links", "alignment"]),
    *(("walkthrough", {"topic": "Order", "on": on}, ["order"])
      for on in ("This head", "Toy example")),
]  # fmt: skip
"""Page, what its address says, and what it offers; figures of `attnviz.export.figure` have a test of their own."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """Three tiny models, a saved trace, and the texts that the lines read."""
    found = tmp_path_factory.mktemp("offered")
    write_models(found)
    write_pair(found)
    weights = torch.rand((2, 3, 3, 3), generator=torch.Generator().manual_seed(0)).softmax(-1)
    cross_trace(weights, ("seven", "hundred", "two"), ("7", "0", "2")).save(found / "numbers.attn")
    (found / "texts.txt").write_text(MARKED)
    (found / "sentences.conllu").write_text(
        "\n".join("\t".join(line.split()) for line in SENTENCES.splitlines()) + "\n"
    )
    return found


@pytest.fixture
def offered(real, folder, monkeypatch):
    """Open a page; what it offers by name."""
    monkeypatch.setenv("ATTNVIZ_MODEL_ROOT", str(folder))
    monkeypatch.chdir(folder)
    found = {}
    for page in PAGES:
        module = importlib.import_module(f"attnviz.dashboard.{page}")
        if getattr(module, "offer", None) is results.offer:
            monkeypatch.setattr(module, "offer", lambda result: found.update({result.name: result}))

    def opened(page, **query):
        app = real(page, **{"model": "bert", "layer": "1", "head": "2", **query})
        if app.button and app.button[-1].label.startswith("Compute"):
            app.button[-1].click().run()
        assert not app.exception
        assert not app.error
        return found

    return opened


@pytest.mark.parametrize(("page", "query", "names"), OFFERED, ids=lambda value: value if isinstance(value, str) else "")
def test_the_lines_write_what_the_buttons_give(offered, folder, page, query, names, capsys):
    found = offered(page, **query)
    assert list(found) == names
    for name, result in found.items():
        assert "Model" not in result.python  # figures name the model as its user does, not by its class
        exec(compile(result.python, name, "exec"), {})
        assert (folder / f"{name}.svg").read_bytes() == results.file(result, "svg", "screen")
        if result.command:
            words = shlex.split(result.command)
            target = folder / words[words.index("-o") + 1]
            target.unlink(missing_ok=True)
            assert run(words[1:]) == 0, capsys.readouterr().err
            kind = target.suffix[1:]
            assert target.read_bytes() == results.file(result, kind, "screen")


@pytest.mark.parametrize(
    ("page", "query", "names"), OFFERED[::3], ids=lambda value: value if isinstance(value, str) else ""
)
def test_files_in_every_format(offered, page, query, names):
    for name, result in offered(page, **query).items():
        for kind, start in START.items():
            assert results.file(result, kind, "dark").startswith(start), f"{name}.{kind}"
        rows = json.loads(results.file(result, "json", "dark"))
        table = list(csv.DictReader(results.file(result, "csv", "dark").decode().splitlines()))
        assert list(table[0]) == list(rows[0])
        assert len(table) == len(rows)


def test_the_example_of_coreference_can_be_written_to_a_file():
    from attnviz.dashboard.annotated import typed_brackets, uploaded

    assert uploaded("texts.txt", EXAMPLE.encode())[0].words == typed_brackets(EXAMPLE)[0].words


def test_fractions_of_a_table_have_the_same_digits():
    import pandas as pd

    table = pd.DataFrame({"head": [1, 2], "accuracy": [1.0, 2 / 3]})
    assert {name: kind["type_config"]["format"] for name, kind in results.fixed(table).items()} == {"accuracy": "%.4f"}
