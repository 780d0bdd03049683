"""Arguments of the wrong kind are refused in one line that gives the rule and what was given."""

import pytest
from tiny_models import save_bert

import attnviz
from attnviz import charts
from attnviz.errors import TraceFileError, UsageError
from attnviz.export import export, figure
from attnviz.models import load_model


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    return load_model(save_bert(tmp_path_factory.mktemp("bert")))


@pytest.fixture(scope="module")
def trace(pair):
    return attnviz.inspect(pair, "the cat sat")


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((None,), {}, r"the text must be one string \(of several texts, inspect each\), got None"),
        ((["the", "cat"],), {}, r"the text must be one string .*, got a list"),
        ((" ",), {}, "the text is empty: give at least one word"),
        (
            ("the",),
            {"foo": 1},
            "there is no option 'foo': the options of inspect are start, tokens, keep",
        ),
        (("the",), {"layers": 1}, r"layers must be a list of whole numbers, such as \[0, 3\], got 1"),
        (("the",), {"heads": [0.5]}, r"heads must be a list of whole numbers, such as \[0, 3\], got 0.5"),
        (("the",), {"dtype": "float16"}, "dtype must be a type of torch, such as torch.float16, got 'float16'"),
        (("the",), {"budget": "1 GB"}, "budget must be a positive number of bytes, got 1 GB"),
        (("the",), {"spill": 3}, r'the path must be a string or a pathlib.Path, such as "run.attn", got 3'),
        (("the",), {"tokens": "the"}, "tokens must be a list of labels, or one for each side by its name, got 'the'"),
    ],
)
def test_inspect(pair, arguments, options, message):
    with pytest.raises(UsageError, match=f"^{message}"):
        attnviz.inspect(pair, *arguments, **options)


def test_what_is_inspected(pair, trace):
    model, tokenizer = pair
    for given, message in (
        (model, r"a model alone cannot read a text: give \(model, tokenizer\)"),
        ((model, None), r"this model has no tokenizer, which reads the text: give \(model, tokenizer\)"),
        ((model,), r"a loaded model is given as \(model, tokenizer\), got a tuple of 1"),
        ((tokenizer, model), "the model must be a loaded torch module .*, got a BertTokenizer"),
        (3, "a model to load must be named: a bundled name, a folder, a .gguf file or a hub id, got 3"),
        (trace, "a model to load must be named: .*, got a Trace"),
    ):
        with pytest.raises(UsageError, match=f"^{message}"):
            attnviz.inspect(given, "the cat")


def test_what_is_recorded(pair):
    model, tokenizer = pair
    for given, options, message in (
        ("minilm", {}, "the model must be a loaded torch module .*, got 'minilm'"),
        (pair, {}, "the model must be a loaded torch module .*, got a tuple"),
        (model, {"tokenizer": 3}, "the tokenizer must be one of transformers, such as AutoTokenizer gives, got 3"),
        (model, {"layers": "0 1"}, r"layers must be a list of whole numbers, such as \[0, 3\], got '0 1'"),
        (model, {"tokens": 3}, "tokens must be a list of labels"),
    ):
        with pytest.raises(UsageError, match=f"^{message}"), attnviz.record(given, **options):
            model(**tokenizer("the cat", return_tensors="pt"))


def test_charts_and_figures(trace, tmp_path):
    head = trace[0, 0]
    for chart in (charts.heatmap, charts.links, charts.scaling):
        with pytest.raises(UsageError, match=r"^the source of this chart must be one head, such as .*, got a Trace$"):
            chart(trace)
    for chart in (charts.head_grid, charts.thumbnails, lambda given: figure(given, "heatmap")):
        with pytest.raises(UsageError, match=r"^the source must be a whole trace .*, got a Head$"):
            chart(head)
    with pytest.raises(UsageError, match=r"^pictures and pages show a figure or a chart, got a Head: a f.* table is"):
        export(head, tmp_path / "a.svg")
    with pytest.raises(UsageError, match=r"^the path must be a string or a pathlib.Path, such as .*, got None$"):
        export(figure(trace), None)
    with pytest.raises(UsageError, match=r"^look must be a Look, such as Look\(.dark.\), got 'dark'$"):
        export(figure(trace), tmp_path / "a.svg", look="dark")


def test_heads(trace):
    head = trace[0, 0]
    for call, message in (
        (lambda: head.links(-1), "count must be a whole number from 1 on, got -1"),
        (lambda: head.links(1.5), "count must be a whole number from 1 on, got 1.5"),
        (lambda: head.links(3, rows=3), "rows must be a list of whole numbers, such as .*, got 3"),
        (lambda: head.weights(rows=3), r"rows must be a range, such as slice\(0, 16\), got 3"),
        (lambda: head.weights(cols=[1, 2]), r"cols must be a range, such as slice\(0, 16\), got a list"),
        (lambda: head.word_weights(3), "words must be cut at punctuation or whitespace, or listed in order, got 3"),
    ):
        with pytest.raises(UsageError, match=f"^{message}$"):
            call()


def test_files(trace, tmp_path):
    for call in (lambda: attnviz.load(None), lambda: trace.save(None)):
        with pytest.raises(UsageError, match=r"^the path must be a string or a pathlib.Path, such as .*, got None$"):
            call()
    with pytest.raises(UsageError, match=r"^a trace file ends in .attn, got run$"):
        trace.save(tmp_path / "run")
    with pytest.raises(UsageError, match=r"^layers must be a list of whole numbers, .*, got 3$"):
        trace.save(tmp_path / "run.attn", layers=3)
    with pytest.raises(TraceFileError, match=r" is a folder: give a file in it, written by trace.save"):
        attnviz.load(tmp_path)
    with pytest.raises(UsageError, match=r"^dtype must be a type of torch, such as torch.float16, got 'float16'$"):
        load_model("minilm", dtype="float16")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"shape": 4}, r"^shape must be two positive whole numbers, got 4$"),
        ({"shape": (0, 0)}, r"^shape must be two positive whole numbers, got \(0, 0\)$"),
        ({"shape": (2, 2), "reduce": "sum"}, r'^reduce must be "mean" or "max", got \'sum\'$'),
        ({"shape": (2, 2), "rows": slice(9, 9)}, r"^rows must select at least one of .* positions, got 9:9$"),
    ],
)
def test_pooled_maps(trace, wrong, said):
    with pytest.raises(UsageError, match=said):
        trace[0, 0].pooled(**wrong)
