import copy

import pandas as pd
import pytest
import torch

from attnviz.analysis import measures
from attnviz.analysis.ablation import ablate, ablate_each, every_head, knock_out
from attnviz.analysis.tables import by_size
from attnviz.errors import RecordingError, UsageError

TEXT = "The capital of France is"


@pytest.fixture(scope="module")
def exact(smollm2):
    """SmolLM2 in float64, where two ways of computing the same agree to the last digits."""
    model, tokenizer = smollm2
    return copy.deepcopy(model).double(), tokenizer


def setting(pair, text=TEXT):
    model, tokenizer = pair
    inputs = tokenizer(text, return_tensors="pt")
    return model, inputs, measures.logit(tokenizer(" Paris", add_special_tokens=False)["input_ids"][0])


@pytest.mark.parametrize("layer_head", [(0, 0), (17, 4), (29, 8)])
def test_zero_ablation_equals_a_hook_on_the_output_projection(exact, layer_head):
    model, inputs, measure = setting(exact)
    layer, head = layer_head
    size = model.config.head_dim

    def silence(module, args):
        states = args[0].clone()
        states[..., head * size : (head + 1) * size] = 0
        return (states,)

    handle = model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(silence)
    with torch.inference_mode():
        wanted = measure(model(**inputs)).item()
    handle.remove()
    found = ablate(model, inputs, [layer_head], measure)
    assert found.after == pytest.approx(wanted, abs=1e-9)
    assert found.before == pytest.approx(measure(model(**inputs)).item(), abs=1e-9)
    assert found.change == found.after - found.before


def test_mean_ablation_writes_the_mean_over_positions(exact):
    model, inputs, measure = setting(exact)
    size = model.config.head_dim

    def average(module, args):
        states = args[0].clone()
        part = states[..., 3 * size : 4 * size]
        states[..., 3 * size : 4 * size] = part.mean((0, 1), keepdim=True)
        return (states,)

    handle = model.model.layers[5].self_attn.o_proj.register_forward_pre_hook(average)
    with torch.inference_mode():
        wanted = measure(model(**inputs)).item()
    handle.remove()
    assert ablate(model, inputs, [(5, 3)], measure, how="mean").after == pytest.approx(wanted, abs=1e-9)


def test_keeping_every_head_changes_nothing_and_keeping_none_but_one_does(minilm):
    model, tokenizer = minilm
    inputs = tokenizer(["The bank was muddy.", "A river has banks."], return_tensors="pt", padding=True)
    measure = measures.cosine(inputs["attention_mask"])
    heads = every_head(model, inputs)
    assert heads == [(layer, head) for layer in range(6) for head in range(12)]
    whole = ablate(model, inputs, heads, measure, how="keep")
    assert whole.after == pytest.approx(whole.before, abs=1e-6)
    assert abs(ablate(model, inputs, [(0, 0)], measure, how="keep").change) > 0.01


def test_knock_out_equals_an_attention_mask(minilm):
    """Hiding token 3 from every query is what a padding mask over it does."""
    model, tokenizer = minilm
    inputs = tokenizer("The bank was muddy.", return_tensors="pt")
    count = inputs["input_ids"].shape[1]
    masked = {**inputs, "attention_mask": inputs["attention_mask"].clone()}
    masked["attention_mask"][0, 3] = 0

    def measure(output):
        return output.last_hidden_state[0, 0, :5].sum()

    with torch.inference_mode():
        wanted = measure(model(**masked)).item()
    found = knock_out(model, inputs, range(count), [3], measure)
    assert found.after == pytest.approx(wanted, abs=1e-5)
    one = knock_out(model, inputs, [0], [3], measure, layers=[5], heads=[(5, 0)])
    assert abs(one.change) > 0
    assert knock_out(model, inputs, [0], [3], measure, layers=[5], heads=[(4, 0)]).change == pytest.approx(0, abs=1e-5)


def test_rows_by_size_are_sorted_by_the_change_whatever_its_sign():
    table = pd.DataFrame({"head": [0, 1, 2], "change": [0.1, -0.3, 0.2]})
    assert by_size(table, "change")["head"].tolist() == [1, 2, 0]


def test_each_head_alone(minilm):
    model, tokenizer = minilm
    inputs = tokenizer(["The bank was muddy.", "A river has banks."], return_tensors="pt", padding=True)
    measure = measures.cosine(inputs["attention_mask"])
    seen = []
    table = ablate_each(model, inputs, measure, heads=[(0, 1), (5, 7)], progress=lambda *step: seen.append(step))
    assert seen == [(1, 2), (2, 2)]
    for row in table.to_dict("records"):
        effect = ablate(model, inputs, [(int(row["layer"]), int(row["head"]))], measure)
        assert row["change"] == pytest.approx(effect.change, abs=1e-6)
    assert table["change"].abs().is_monotonic_decreasing


def test_progress_is_told_after_each_run_and_can_stop_it(minilm):
    model, tokenizer = minilm
    inputs = tokenizer("The bank.", return_tensors="pt")
    seen = []

    def measure(output):
        return output.last_hidden_state.sum()

    def stop(done, total):
        seen.append((done, total))
        raise InterruptedError

    for work in (
        lambda tell: ablate(model, inputs, [(0, 0)], measure, progress=tell),
        lambda tell: knock_out(model, inputs, [0], [1], measure, progress=tell),
        lambda tell: ablate_each(model, inputs, measure, progress=tell),
    ):
        with pytest.raises(InterruptedError):
            work(stop)
    assert seen == [(1, 2), (1, 2), (1, 72)]
    ablate(model, inputs, [(0, 0)], measure, progress=lambda *step: seen.append(step))
    assert seen[3:] == [(1, 2), (2, 2)]


def test_bad_input(minilm):
    model, tokenizer = minilm
    inputs = tokenizer("The bank.", return_tensors="pt")

    def measure(output):
        return output.last_hidden_state.sum()

    with pytest.raises(UsageError, match="layer 1 head 12 does not exist: it has 0 to 11"):
        ablate(model, inputs, [(1, 12)], measure)
    with pytest.raises(UsageError, match="layer 9 head 0 does not exist: the layers that ran are 0, 1, 2, 3, 4, 5"):
        ablate(model, inputs, [(9, 0)], measure)
    with pytest.raises(UsageError, match="how must be one of zero, mean, keep, got 'half'"):
        ablate(model, inputs, [(0, 0)], measure, how="half")
    with pytest.raises(UsageError, match="keys must be positions from 0 to 4, got 17"):
        knock_out(model, inputs, [0], [17], measure)
    with pytest.raises(UsageError, match="this model predicts no tokens"):
        ablate(model, inputs, [(0, 0)], measures.logit(3))
    with pytest.raises(RecordingError, match="does not call transformers' AttentionInterface"):
        ablate(torch.nn.Linear(2, 2), {"input": torch.zeros(1, 2)}, [(0, 0)], lambda output: output.sum())


def test_the_model_is_afterwards_as_it_was(minilm):
    model, tokenizer = minilm
    inputs = tokenizer("The bank.", return_tensors="pt")
    before = model.config._attn_implementation

    def fails(output):
        raise KeyError("measure")

    with pytest.raises(KeyError):
        ablate(model, inputs, [(0, 0)], fails)
    assert model.config._attn_implementation == before
