"""`attnviz inspect`: what it prints for people and for machines, and the one line it says of bad input."""

import csv
import io
import json
import subprocess
import sys

import pytest
import torch

from attnviz.cli import entry as cli

TEXT = "The bank of the river was muddy."
ATTNVIZ = (sys.executable, "-c", "from attnviz.cli import main; main()")
pytestmark = pytest.mark.usefixtures("minilm")


def inspect(*arguments, capsys, code=0):
    assert cli.run(["inspect", *arguments]) == code
    return capsys.readouterr()


def eager(minilm, text=TEXT):
    """The model's own weights, [layer, head, row, column]."""
    model, tokenizer = minilm
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            found = model(**tokenizer(text, return_tensors="pt"), output_attentions=True).attentions
    finally:
        model.set_attn_implementation(implementation)
    return torch.stack(found)[:, 0]


def test_table_of_heads_and_strongest_links(capsys, minilm):
    out = inspect("minilm", TEXT, "--layer", "2", "--head", "5", "--top", "3", capsys=capsys).out.splitlines()
    assert out[0] == "minilm: 6 layers, 72 heads, 10 tokens"
    assert out[2].split() == [
        "layer",
        "head",
        "entropy",
        "largest",
        "distance",
        "own",
        "previous",
        "next",
        "first",
        "special",
    ]
    assert [line.split()[:2] for line in out[3:15]] == [["2", str(head)] for head in range(12)]
    assert out[16] == "The strongest links of layer 2, head 5:"
    weights = eager(minilm)[2, 5]
    best = torch.topk(weights.flatten(), 3)
    for line, weight, place in zip(out[18:21], best.values, best.indices, strict=True):
        row, column, *_, shown = line.split()
        assert (int(row), int(column)) == divmod(int(place), 10)
        assert shown == f"{weight:.3f}"


def test_json_has_tokens_heads_and_links(capsys, minilm):
    found = json.loads(inspect("minilm", TEXT, "--layer", "0", "--head", "3", "--json", capsys=capsys).out)
    assert found["model"] == "minilm"
    assert [token["text"] for token in found["tokens"]][:3] == ["[CLS]", "The", "bank"]
    assert len(found["heads"]) == 12
    weights = eager(minilm)[0, 3]
    assert len(found["links"]) == 10
    for link in found["links"]:
        assert link["weight"] == pytest.approx(weights[link["row"], link["column"]].item(), abs=1e-6)
    entropy = -torch.xlogy(weights, weights).sum(-1).mean().item()
    assert found["heads"][3]["entropy"] == pytest.approx(entropy, abs=1e-5)


def test_csv_has_the_heads_or_the_links(capsys):
    heads = list(csv.DictReader(io.StringIO(inspect("minilm", TEXT, "--csv", capsys=capsys).out)))
    assert len(heads) == 72
    assert {"layer", "head", "entropy", "entropy_normalised"} <= {*heads[0]}
    arguments = ("minilm", TEXT, "--csv", "--layer", "1", "--head", "0", "--top", "4")
    links = list(csv.DictReader(io.StringIO(inspect(*arguments, capsys=capsys).out)))
    assert list(links[0]) == ["row", "column", "from", "to", "weight"]
    assert len(links) == 4


def test_text_from_a_file_and_from_standard_input(capsys, tmp_path, monkeypatch):
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    by_argument = inspect("minilm", TEXT, "--csv", capsys=capsys).out
    assert inspect("minilm", "--file", str(tmp_path / "text.txt"), "--csv", capsys=capsys).out == by_argument
    (tmp_path / "marked.txt").write_text(TEXT, encoding="utf-8-sig")
    assert inspect("minilm", "--file", str(tmp_path / "marked.txt"), "--csv", capsys=capsys).out == by_argument
    for arguments, given in (((), TEXT), (("-",), TEXT), (("-",), f"\ufeff{TEXT}")):
        monkeypatch.setattr(sys, "stdin", io.StringIO(given))
        assert inspect("minilm", *arguments, "--csv", capsys=capsys).out == by_argument


def test_saved_trace_instead_of_a_model(capsys, tmp_path):
    import attnviz

    attnviz.inspect("minilm", TEXT).save(tmp_path / "run.attn")
    assert inspect(str(tmp_path / "run.attn"), "--csv", capsys=capsys).out.startswith("layer,head,entropy")
    err = inspect(str(tmp_path / "run.attn"), TEXT, capsys=capsys, code=2).err
    assert err == f"error: {tmp_path}/run.attn is a trace and brings its own text: leave out the text\n"


def test_tokens_are_text_in_the_terminal(capsys):
    text = "[bold]x[/bold] \x1b[31mred\x1b[0m \x07 </script> " + "y" * 90
    out = inspect("minilm", text, "--layer", "0", "--head", "0", "--top", "400", capsys=capsys).out
    assert "\x1b" not in out
    assert "\x07" not in out
    assert max(map(len, out.splitlines())) < 120
    out = inspect("minilm", text, "--json", capsys=capsys).out
    assert "\x1b" not in out


BAD = [
    ([""], 2, "the text is empty: give it as an argument, with --file, or through a pipe"),
    ([" \n"], 2, "the text is empty: give it as an argument, with --file, or through a pipe"),
    (["word " * 600], 2, "the text has 602 tokens, this model reads 512 at most: give a shorter text"),
    ([TEXT, "--layer", "6"], 2, "layer 6 does not exist: this trace has 6 layers (0 to 5)"),
    (
        [TEXT, "--layer", "5", "--head", "12"],
        2,
        "head 12 does not exist: layer 5 of this trace has 12 heads (0 to 11)",
    ),
    ([TEXT, "--head", "1"], 2, "head 1 of which layer? give --layer as well"),
    ([TEXT, "--layer", "-1"], 2, "Invalid value for '--layer': "),
    ([TEXT, "--json", "--csv"], 2, "choose --json or --csv, not both"),
    ([TEXT, "--file", "x.txt"], 2, "give the text as an argument or with --file, not both"),
    (["--file", "missing.txt"], 2, "missing.txt cannot be read (No such file or directory): name a text file"),
    ([TEXT, "--kind", "cross"], 2, "this trace has no cross attention: it has self"),
]


@pytest.mark.parametrize(("arguments", "code", "line"), BAD, ids=[line[:30] for _, _, line in BAD])
def test_bad_input(arguments, code, line, capsys):
    found = inspect("minilm", *arguments, capsys=capsys, code=code)
    assert found.out == ""
    assert found.err.startswith(f"error: {line}")
    assert found.err.count("\n") == 1


def test_file_that_is_no_model(capsys, tmp_path):
    (tmp_path / "run").write_bytes(b"trace")
    err = inspect(str(tmp_path / "run"), capsys=capsys, code=2).err
    assert err.endswith("/run is neither a trace (.attn) nor a model (a folder or .gguf): give one of those\n")


def test_file_that_is_no_text(capsys, tmp_path):
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\xff\xfe")
    err = inspect("minilm", "--file", str(tmp_path / "picture.png"), capsys=capsys, code=2).err
    assert err == f"error: {tmp_path}/picture.png is not UTF-8 text: save it as UTF-8\n"


def test_unknown_model_and_trace(capsys, tmp_path):
    err = inspect("minilmm", TEXT, capsys=capsys, code=1).err
    assert err.startswith('error: no model "minilmm"')
    assert "did you mean minilm?" in err
    err = inspect(str(tmp_path / "no.attn"), capsys=capsys, code=1).err
    assert err == f"error: {tmp_path}/no.attn does not exist: give a file written by trace.save or attnviz record\n"


def test_standard_input_closed():
    command = [*ATTNVIZ, "inspect", "minilm"]
    shell = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", *command], capture_output=True, text=True, timeout=120)
    assert shell.returncode == 2
    assert shell.stderr == "error: the text is empty: give it as an argument, with --file, or through a pipe\n"
