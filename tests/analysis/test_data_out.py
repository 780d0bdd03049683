"""Numbers on their way to other tools: tables, numpy, DLPack, BertViz."""

import io

import numpy as np
import pandas as pd
import pytest
import torch
from traces import make_axis, make_trace

from attnviz.errors import BudgetError, UsageError
from attnviz.head import Record
from attnviz.trace import Trace
from attnviz.views import Dense

WORDS = ("The", "bank", "of", "the", "river")


@pytest.fixture(scope="module")
def trace():
    return make_trace(WORDS, layers=2, heads=3, causal=True)


def test_statistics_are_those_of_every_head(trace):
    table = trace.statistics()
    assert len(table) == 2 * 3 * 5
    for (layer, head), rows in table.groupby(["layer", "head"]):
        found = trace[layer, head].statistics
        assert rows["token"].tolist() == list(WORDS)
        assert rows["visible_keys"].tolist() == [1, 2, 3, 4, 5]
        for name in ("entropy", "largest", "distance", "own", "previous", "first"):
            assert rows[name].to_numpy() == pytest.approx(getattr(found, name).numpy())
        weights = trace[layer, head].weights()
        assert rows["largest_key"].tolist() == weights.argmax(-1).tolist()


def test_statistics_survive_parquet_and_csv(trace):
    pytest.importorskip("pyarrow")
    table = trace.statistics()
    pd.testing.assert_frame_equal(pd.read_parquet(io.BytesIO(table.to_parquet())), table)
    written = pd.read_csv(io.StringIO(table.to_csv(index=False)))
    pd.testing.assert_frame_equal(written.astype(table.dtypes.drop("token").to_dict()), table, check_dtype=False)


def test_a_head_is_an_array(trace):
    head = trace[1, 2]
    assert (np.asarray(head) == head.weights().numpy()).all()
    assert np.asarray(head, dtype=np.float64).dtype == np.float64
    assert np.array(head).shape == (5, 5)
    with pytest.raises(ValueError, match="without a copy"):
        np.asarray(head, copy=False)


def test_a_head_speaks_dlpack(trace):
    head = trace[0, 1]
    assert (np.from_dlpack(head) == head.weights().numpy()).all()
    assert torch.equal(torch.from_dlpack(head), head.weights())


def test_bertviz_gets_the_models_own_attentions_and_tokens(minilm):
    import attnviz

    model, tokenizer = minilm
    text = "The bank of the river."
    found = attnviz.inspect(minilm, text).to_bertviz()
    encoded = tokenizer(text, return_tensors="pt")
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            attentions = model(**encoded, output_attentions=True).attentions
    finally:
        model.set_attn_implementation(implementation)
    assert set(found) == {"attention", "tokens"}
    assert found["tokens"] == tokenizer.convert_ids_to_tokens(encoded["input_ids"][0])
    assert [layer.shape for layer in found["attention"]] == [layer.shape for layer in attentions]
    for ours, own in zip(found["attention"], attentions, strict=True):
        torch.testing.assert_close(ours, own)


def test_bertviz_of_some_layers_and_within_a_budget(trace):
    found = trace.to_bertviz(layers=[1])
    assert len(found["attention"]) == 1
    assert torch.equal(found["attention"][0][0, 2], trace[1, 2].weights())
    with pytest.raises(BudgetError, match=r"^BertViz needs 600 bytes of weights, the budget is 599: give layers= or"):
        trace.to_bertviz(budget=599)
    with pytest.raises(UsageError, match=r"^layer 7 does not exist"):
        trace.to_bertviz(layers=[7])


def test_bertviz_of_an_encoder_decoder_model():
    def record(kind, rows, cols):
        weights = torch.softmax(torch.randn(1, 2, rows, cols), -1)
        return Record(f"{kind}.attention", 0, kind, "interface", "dense", Dense(weights))

    records = [record("encoder", 4, 4), record("decoder", 3, 3), record("cross", 3, 4)]
    axes = {"encoder": (make_axis(("a", "b", "c", "d")),), "decoder": (make_axis(("x", "y", "z")),)}
    found = Trace("pair", records, axes).to_bertviz()
    assert {name: tuple(found[f"{name}_attention"][0].shape) for name in ("encoder", "decoder", "cross")} == {
        "encoder": (1, 2, 4, 4), "decoder": (1, 2, 3, 3), "cross": (1, 2, 3, 4),
    }  # fmt: skip
    assert found["encoder_tokens"] == ["a", "b", "c", "d"]
    assert found["decoder_tokens"] == ["x", "y", "z"]
    only = Trace("pair", records[2:], axes).to_bertviz()
    assert set(only) == {"cross_attention", "encoder_tokens", "decoder_tokens"}
