"""The commands that read heads off a trace, and the one line that analysis commands say of bad input."""

import json

import pytest
from cli.commands import TEXT, records

from attnviz.analysis.compare import compare_heads
from attnviz.analysis.flow import flow, reach, rollout
from attnviz.recording import inspect

pytestmark = pytest.mark.usefixtures("minilm")


def test_heads_are_sorted_by_the_column_asked_for(attnviz, minilm, tmp_path):
    table = inspect(minilm, TEXT).heads().sort_values("previous", ascending=False)
    found = records(attnviz("heads", "minilm", TEXT, "--sort", "previous", "--json"))
    assert [row["previous"] for row in found] == table["previous"].tolist()
    attnviz("heads", "minilm", TEXT, "--sort", "previous", "-o", tmp_path / "h.svg")
    assert "Every head's weight on the previous token" in (tmp_path / "h.svg").read_text()
    attnviz("heads", "minilm", TEXT, "-o", tmp_path / "h.csv")
    assert len((tmp_path / "h.csv").read_text().splitlines()) == 73


def test_heads_row_by_row(attnviz, minilm):
    trace = inspect(minilm, TEXT)
    found = records(attnviz("heads", "minilm", TEXT, "--layer", 2, "--head", 4, "--json"))
    assert [row["token"] for row in found] == [token.label for token in trace.tokens]
    assert [row["entropy"] for row in found] == pytest.approx(trace[2, 4].entropy.tolist(), abs=1e-6)
    printed = attnviz("heads", "minilm", TEXT, "--layer", 2, "--head", 4, "--top", 3).out
    assert "... 7 more; --top or --json shows them" in printed
    told = attnviz("heads", "minilm", TEXT, "--layer", 2, code=2).err
    assert told == "error: row by row takes --layer and --head, and one text\n"


def test_heads_over_lines_have_standard_errors(attnviz, minilm, tmp_path):
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n\nShe walked home.\n")
    found = records(attnviz("heads", "minilm", "--file", tmp_path / "texts.txt", "--lines", "--json"))
    first = next(row for row in found if (row["layer"], row["head"]) == (3, 7))
    one, two = (inspect(minilm, text).heads().set_index(["layer", "head"]) for text in (TEXT, "She walked home."))
    values = [table.loc[(3, 7), "entropy"] for table in (one, two)]
    assert first["entropy"] == pytest.approx(sum(values) / 2)
    assert first["entropy_error"] == pytest.approx(abs(values[0] - values[1]) / 2)
    assert "at least 2 texts, got 1" in attnviz("heads", "minilm", TEXT, "--lines", code=2).err


def test_words_of_your_own_in_a_map(attnviz, minilm, tmp_path):
    attnviz(
        "export", "minilm", TEXT, "--layer", 2, "--head", 4, "--cut", "The bank|of the river", "-o", tmp_path / "w.json"
    )
    document = json.loads((tmp_path / "w.json").read_text())
    assert [token["text"] for token in document["keys"]] == [
        "[CLS]", "The bank", "of the river", "was", "muddy", ".", "[SEP]",
    ]  # fmt: skip
    wanted = inspect(minilm, TEXT)[2, 4].word_weights(["The bank", "of the river"])
    assert document["weights"][1] == pytest.approx(wanted[1].tolist(), abs=1e-6)
    told = attnviz("export", "minilm", TEXT, "--cut", "bank|The", "-o", tmp_path / "x.json", code=2).err
    assert told == "error: the word 'The' is not in the text from character 8 on: give words in order\n"


def test_roles_in_a_file_are_all_of_them(attnviz, traced, tmp_path):
    printed = attnviz("roles", traced, "--top", 1, "-o", tmp_path / "roles.csv").out
    assert len((tmp_path / "roles.csv").read_text().splitlines()) == int(printed.split()[0]) + 1
    assert "…" not in printed


def test_traces_are_compared_with_traces(attnviz, traced):
    told = attnviz("compare", traced, code=2).err
    assert told == "error: a trace is compared with another: give --with and a trace (.attn) or a model\n"
    for others in (("x",), ("x", "y"), ("x", "--with", traced)):
        told = attnviz("compare", traced, *others, code=2).err
        assert told.endswith("a trace is compared with another: give --with and a trace (.attn) or a model\n") or (
            told.endswith("is a trace and brings its own text: compare it by --with another trace or a model\n")
        )


def test_roles_show_score_threshold_and_source(attnviz):
    found = records(attnviz("roles", "minilm", TEXT, "--json"))
    previous = [row for row in found if row["role"] == "previous token"]
    assert [(row["layer"], row["head"]) for row in previous] == [(0, 2)]
    assert previous[0]["threshold"] == "> 0.5"
    assert "Clark et al. 2019" in previous[0]["source"]
    assert "Voita et al. 2019" in next(row["source"] for row in found if row["role"] == "offset -1")


def test_rollout_prints_the_scores_of_the_library(attnviz, minilm):
    scores = rollout(inspect(minilm, TEXT), 2).scores.tolist()
    found = records(attnviz("rollout", "minilm", TEXT, "--token", 2, "--json"))
    assert {row["position"]: row["score"] for row in found} == pytest.approx(dict(enumerate(scores)), abs=1e-6)


@pytest.mark.parametrize(("method", "function", "title"), [("reach", reach, "Reach from"), ("flow", flow, "Flow to")])
def test_rollout_by_other_methods(attnviz, minilm, tmp_path, method, function, title):
    scores = function(inspect(minilm, TEXT), 2).scores.tolist()
    options = ("--token", 2, "--method", method, "--json", "-o", tmp_path / "r.svg")
    found = records(attnviz("rollout", "minilm", TEXT, *options))
    assert {row["position"]: row["score"] for row in found} == pytest.approx(dict(enumerate(scores)), abs=1e-6)
    assert f"{title} token 2" in (tmp_path / "r.svg").read_text()


def test_compare_of_a_text_with_itself_is_zero(attnviz):
    found = records(attnviz("compare", "minilm", TEXT, TEXT, "--json"))
    assert max(row["distance"] for row in found) < 1e-3
    told = attnviz("compare", "minilm", TEXT, "Short.", code=2).err
    assert told == ("error: rows can be compared when both maps have the same shape: these have 10 x 10 and 4 x 4\n")


def test_compare_of_two_traces_and_of_a_trace_with_a_model(attnviz, tmp_path):
    attnviz("record", "minilm", TEXT, "-o", tmp_path / "one.attn")
    attnviz("record", "minilm", "The bank of the town was muddy.", "-o", tmp_path / "two.attn")
    wanted = records(attnviz("compare", "minilm", TEXT, "The bank of the town was muddy.", "--json"))
    found = records(attnviz("compare", tmp_path / "one.attn", "--with", tmp_path / "two.attn", "--json"))
    assert [(row["layer"], row["head"]) for row in found[:5]] == [(row["layer"], row["head"]) for row in wanted[:5]]
    assert wanted[0]["distance"] > 0.1
    same = records(attnviz("compare", tmp_path / "one.attn", "--with", "minilm", "--json"))
    assert max(row["distance"] for row in same) < 1e-3


def test_compare_of_one_head_shows_its_rows_and_its_difference(attnviz, minilm, tmp_path):
    other = "The bank of the town was muddy."
    place = ("--layer", 2, "--head", 4)
    found = records(attnviz("compare", "minilm", TEXT, other, *place, "--json", "-o", tmp_path / "change.svg"))
    one, two = (inspect(minilm, text)[2, 4].weights() for text in (TEXT, other))
    middle = (one + two) / 2
    parts = [(part * (part / middle).log2()).nan_to_num().sum(1) / 2 for part in (one, two)]
    wanted = (parts[0] + parts[1]).clamp(0).sqrt()
    assert {row["position"]: row["distance"] for row in found} == pytest.approx(
        dict(enumerate(wanted.tolist())), abs=1e-3
    )
    assert "less" in (tmp_path / "change.svg").read_text(encoding="utf-8")


def test_one_head_is_compared_with_another_or_with_every_other(attnviz, minilm):
    trace = inspect(minilm, TEXT)
    place = ("compare", "minilm", TEXT, "--layer", 2, "--head", 4)
    rows = records(attnviz(*place, "--second", "3.7", "--json"))
    wanted = compare_heads(trace[2, 4], trace[3, 7])
    assert [row["distance"] for row in rows] == pytest.approx(wanted.table()["distance"].tolist(), abs=1e-6)
    every = {(row["layer"], row["head"]): row["distance"] for row in records(attnviz(*place, "--json"))}
    assert len(every) == 71
    assert (2, 4) not in every
    assert every[3, 7] == pytest.approx(wanted.mean, abs=1e-6)


def test_what_compare_needs(attnviz):
    told = attnviz("compare", "minilm", TEXT, code=2).err
    assert told == "error: there is nothing to compare with: give a second text, or --with another model or trace\n"
    told = attnviz("compare", "minilm", TEXT, TEXT, "--head", 3, code=2).err
    assert told == "error: one head is compared by --layer and --head: give both, or neither\n"
    told = attnviz("compare", "minilm", TEXT, TEXT, "--second", "1.3", code=2).err
    assert told == "error: --second is compared with one head: give --layer and --head as well\n"


def test_sparsity_of_a_trace_without_values_has_no_error(attnviz, minilm, tmp_path):
    traced = tmp_path / "weights.attn"
    inspect(minilm, "The bank.").save(traced)
    told = attnviz("sparsity", traced).out
    assert 'mass kept, keys kept (no values, so no error: record with keep="qkv")' in told
    assert "nan" not in told
    assert set(records(attnviz("sparsity", traced, "--json"))[0]) == {"pattern", "mass", "keys"}


def test_roles_that_a_text_is_too_short_for_are_left_out(attnviz, smollm2):
    assert "(local left out, it needs 6 tokens)" in attnviz("roles", "minilm", "The bank").out
    assert "local" not in {row["role"] for row in records(attnviz("roles", "minilm", "The bank", "--json"))}
    assert "local" in {row["role"] for row in records(attnviz("roles", "minilm", TEXT, "--json"))}
    told = attnviz("roles", "smollm2", "The", code=2).err
    assert told == "error: roles need a text of at least 2 tokens, this one has 1: every head looks at it alone\n"


def test_sparsity_has_errors_of_the_output(attnviz):
    found = records(attnviz("sparsity", "minilm", TEXT, "--layer", 0, "--head", 2, "--json"))
    local = next(row for row in found if row["pattern"] == "local 16")
    assert local["mass"] == pytest.approx(1.0, abs=1e-5)
    assert local["error"] == pytest.approx(0.0, abs=1e-5)


FIGURES = [
    ("heads",),
    ("heads", "--layer", 0, "--head", 1),
    ("roles",),
    ("rollout",),
    ("compare", "--layer", 0, "--head", 1),
    ("sparsity",),
    ("align", "--layer", 0, "--head", 0),
    ("export", "--view", "heatmap"),
    ("export", "--view", "heads"),
    ("export", "--view", "entropy"),
    ("export", "--view", "links"),
    ("export", "--view", "thumbnails"),
    ("export", "--view", "scaling"),
]


@pytest.mark.parametrize("asked", FIGURES, ids=lambda asked: " ".join(map(str, asked)))
def test_every_command_draws_its_figure_or_says_it_has_none(attnviz, asked, tmp_path, traced):
    command, *options = asked
    source = (traced, "--with", traced) if command == "compare" else (traced,)
    path = tmp_path / "figure.svg"
    if command in ("roles", "sparsity") or asked == ("heads", "--layer", 0, "--head", 1):
        told = attnviz(command, *source, *options, "-o", path, code=2).err
        assert told == (
            "error: this result is a table without a figure, so svg cannot hold it: choose csv, json or parquet\n"
        )
        assert not path.exists()
        attnviz(command, *source, *options, "-o", tmp_path / "table.csv")
    elif command == "align":
        assert "no cross attention" in attnviz(command, *source, *options, "-o", path, code=2).err
    else:
        attnviz(command, *source, *options, "-o", path)
        assert path.read_text().startswith("<svg")


@pytest.fixture
def traced(minilm, tmp_path):
    """A trace file, so that no model runs."""
    path = tmp_path / "run.attn"
    inspect(minilm, "The bank.", keep="qkv").save(path)
    return path


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("heads", "minilm", TEXT, "--sort", "size"), "--sort must be one of entropy"),
        (("rollout", "minilm", TEXT, "--method", "walk"), "--method must be one of rollout, reach, flow, got 'walk'"),
        (("rollout", "minilm", TEXT, "--token", 40), "token 40 does not exist: this text has 10 tokens (0 to 9)"),
        (("attribute", "minilm", TEXT), "minilm predicts no tokens: give a second text with --with"),
        (("attribute", "minilm", TEXT, "--method", "guess"), "--method must be one of relevance, importance"),
        (("attribute", "minilm", TEXT, "--token", 2, "--method", "ablation"), "--token is for the method relevance"),
        (("attribute", "minilm", TEXT, "--layer", 3), "--layer is for the methods layer conductance, integrated atten"),
        (("attribute", "minilm", TEXT, "--kind", "cross", "--method", "ablation"), "--kind is for the methods relev"),
        (("attribute", "minilm", TEXT, "--steps", 9), "--steps is for the methods integrated gradients, layer cond"),
        (("attribute", "minilm", TEXT, "--with", "x", "--target", " x"), "give a target or a second text, not both"),
        (("attribute", "minilm", TEXT, "--with", " "), "the second text is empty: give at least one word"),
        (("ablate", "minilm", TEXT, "--with", ""), "the second text is empty: give at least one word"),
        (("ablate", "minilm", TEXT, "--with", "x", "--keys", "1", "--how", "mean"), "--how is for heads that are sil"),
        (("attribute", "smollm2", TEXT, "--with", "x"), "similarity needs an encoder's last hidden states, this model"),
        (("ablate", "smollm2", TEXT, "--with", "x"), "similarity needs an encoder's last hidden states, this model"),
        (("attribute", "smollm2", TEXT, "--target", " Paris is big"), "must be one token, '·Paris·is·big' is 3: give"),
        (("attribute", "smollm2", TEXT, "--method", "continuation", "--with", "x"), "tokens that follow: leave out"),
        (("heads", "minilm", TEXT, "--layer", 2, "--head", 4, "--sort", "own"), "rows stand in the order of the text"),
        (("inspect", "minilm", TEXT, "--top", 3), "--top counts the links of one head: give --layer and --head"),
        (("ablate", "minilm", TEXT, "--with", "x", "--queries", "3"), "give both --queries and --keys"),
        (("ablate", "minilm", TEXT, "--with", "x", "--queries", "3", "--keys", "a-2"), "positions and ranges such as"),
        (("ablate", "minilm", TEXT, "--with", "x", "--queries", "3", "--keys", "12"), "must be positions from 0 to 9"),
        (("ablate", "minilm", TEXT, "--with", "x", "--heads", "4-9"), 'pairs such as "4.9 5.0"'),
        (("ablate", "minilm", TEXT, "--with", "x", "--heads", "7.0"), "layer 7 head 0 does not exist: the layers that"),
        (("coref", "minilm", "x.txt", "--document", "1"), "--document is about one head: give --layer"),
        (("coref", "minilm", "x.txt", "--layer", "1"), "one head is named by --layer and --head: give both"),
        (("deps", "minilm", "x.conllu", "--direction", "up"), "direction must be one of to head, to dependent, got"),
        (("deps", "minilm", "x.conllu", "--direction", "to head"), "--direction is about one relation or one head"),
        (("align", "minilm", "a", "b", "--gold", "0-0"), "minilm has no cross attention"),
        (("align", "minilm", "a", "--gold", "0-0"), "this trace has no cross attention"),
        (("align", "minilm", "a", "b", "--gold", "0+0"), "'0+0' is no link"),
        (("align", "minilm", "a", "b"), "heads are scored against gold links: give --gold, or --layer and --head"),
        (("align", "minilm", "a", "--layer", 0, "--head", 0, "--view", "pie"), "--view must be one of matrix, links"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(attnviz, arguments, message):
    told = attnviz(*arguments, code=1 if "is no link" in message else 2).err
    assert told.startswith("error: ")
    assert message in told
    assert told.count("\n") == 1
