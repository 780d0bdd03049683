"""`attnviz record`, and the other commands on the file it writes."""

import json

import pytest

import attnviz
from attnviz.cli import entry as cli
from attnviz.recording import inspect

TEXT = "The bank of the river was muddy."


@pytest.fixture
def call(capsys):
    def run(*arguments, code=0):
        assert cli.run([str(argument) for argument in arguments]) == code
        return capsys.readouterr()

    return run


def test_a_recorded_file_holds_what_inspect_shows(call, minilm, tmp_path):
    path = tmp_path / "run.attn"
    assert call("record", "minilm", TEXT, "-o", path).out.strip() == str(path)
    found, wanted = attnviz.load(path), inspect(minilm, TEXT)
    assert found.model == "minilm"
    assert found.tokens == wanted.tokens
    assert (found[2, 5].weights() - wanted[2, 5].weights()).abs().max() < 1e-6
    table = json.loads(call("inspect", path, "--json").out)
    assert len(table["heads"]) == 72
    call("export", path, "--view", "heatmap", "-o", tmp_path / "map.csv")
    assert len((tmp_path / "map.csv").read_text().splitlines()) == 101


def test_generated_tokens_are_part_of_the_map(call, smollm2, tmp_path):
    path = tmp_path / "run.attn"
    call("record", "smollm2", "The capital of France is", "--generate", "3", "--layers", "0 17", "-o", path)
    found = attnviz.load(path)
    assert found.layers == (0, 17)
    # the last token that is written is never read back
    assert found[17, 4].shape == (7, 7)
    assert found[17, 4].weights().sum(1).sub(1).abs().max() < 1e-5


def test_smaller_files(call, minilm, tmp_path):
    sizes = {}
    for name, *options in (("whole",), ("half", "--dtype", "float16"), ("rows", "--statistics-only")):
        call("record", "minilm", TEXT, *options, "-o", tmp_path / f"{name}.attn")
        sizes[name] = (tmp_path / f"{name}.attn").stat().st_size
    assert sizes["rows"] < sizes["half"] < sizes["whole"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("minilm", TEXT, "-o", "run.bin"), "a trace file ends in .attn, got run.bin"),
        (("minilm", TEXT, "--dtype", "int8", "-o", "run.attn"), "--dtype must be one of float32, float16, bfloat16"),
        (("minilm", " ", "-o", "run.attn"), "the text is empty"),
        (("minilm", TEXT, "--generate", "2", "-o", "run.attn"), "minilm writes no text: leave out --generate"),
        (("minilm", TEXT, "--layers", "x", "-o", "run.attn"), "--layers takes numbers such as"),
        (("minilm", TEXT, "--layers", "9", "-o", "run.attn"), "layer 9 does not attend"),
        (("minilm", TEXT, "-o", "no/run.attn"), "the folder no does not exist"),
    ],
)
def test_bad_input_is_one_line(call, minilm, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    told = call("record", *arguments, code=2).err
    assert message in told
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())
