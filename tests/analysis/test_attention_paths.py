"""Integrated gradients and conductance of attention, against sums written out over hooks on the output projection."""

import pytest
import torch

import attnviz
from attnviz.analysis.ablation import ablate
from attnviz.analysis.attention_paths import (
    Carried,
    HeadAttribution,
    attention_conductance,
    integrated_attention,
)
from attnviz.analysis.attribution import layer_conductance
from attnviz.analysis.cases import alone, case
from attnviz.analysis.measures import logit
from attnviz.analysis.paths import baseline
from attnviz.errors import UsageError
from tests.tiny_models import save_bert

LAYER, HEADS, SIZE = 1, 4, 4


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The similarity of a text to another, as a function of the first text only, by a tiny model with large weights."""
    model, tokenizer = attnviz.load_model(save_bert(tmp_path_factory.mktemp("bert"), initializer_range=0.5))
    return alone(case(model, tokenizer, "the cats sat the cat .", second="cats the ."))


def projection(model):
    return model.encoder.layer[LAYER].attention.output.dense


def by_head(states):
    """[1, M, H * E] to what each head adds up to, [H]."""
    return states[0].unflatten(-1, (HEADS, SIZE)).sum((0, 2))


def hooked(model, change):
    return projection(model).register_forward_pre_hook(lambda _, args: (change(args[0]),))


def test_integrated_gradients_equal_a_sum_over_scaled_attention(one):
    """Midpoints of 200 pieces of the way from no attention in layer 1 to all of it."""
    total = torch.zeros(HEADS)
    for step in range(200):
        kept = []

        def scaled(states, step=step, kept=kept):
            point = (states.detach() * (step + 0.5) / 200).requires_grad_()
            kept.append((states.detach(), point))
            return point

        handle = hooked(one.model, scaled)
        score = one.measure(one.model(**one.inputs))
        handle.remove()
        ((states, point),) = kept
        total += by_head(states * torch.autograd.grad(score, point)[0]) / 200
    found = integrated_attention(one.model, one.inputs, one.measure, layers=[LAYER])
    assert torch.allclose(found.layers[LAYER].scores, total, atol=5e-5)
    assert found.converged
    assert found.remark.startswith("largest error ")


def test_scores_of_a_layer_sum_to_what_its_attention_changes(one):
    found = integrated_attention(one.model, one.inputs, one.measure, layers=[LAYER])
    carried = found.layers[LAYER]
    silenced = ablate(one.model, one.inputs, [(LAYER, head) for head in range(HEADS)], one.measure)
    assert carried.effect == pytest.approx(-silenced.change, abs=1e-6)
    assert carried.scores.sum().item() == pytest.approx(carried.effect, rel=carried.error + 1e-4)


def test_links_of_a_head_sum_to_its_score(one):
    found = integrated_attention(one.model, one.inputs, one.measure, layers=[LAYER])
    table = found.table().set_index(["layer", "head"])["score"]
    for head in (0, 3):
        links = found.links.attention_gradient(LAYER, head)
        assert links.shape == (9, 9)
        assert links.sum().item() == pytest.approx(table[(LAYER, head)], abs=1e-6)


def test_conductance_equals_a_sum_along_the_path(one):
    """Between neighbouring texts of the path: gradient at the first times the change of what the heads write."""
    embed = one.model.get_input_embeddings()
    ids = one.inputs["input_ids"]
    start, end = embed(baseline(one.tokenizer, ids)).detach(), embed(ids).detach()
    written, slopes = [], []
    for step in range(201):
        kept = []

        def keep(states, kept=kept):
            kept.append(states)
            return states

        handle = hooked(one.model, keep)
        point = (start + (end - start) * step / 200).requires_grad_()
        mask = one.inputs["attention_mask"]
        score = one.measure(one.model(inputs_embeds=point, attention_mask=mask))
        handle.remove()
        slopes.append(torch.autograd.grad(score, kept[0])[0])
        written.append(kept[0].detach())
    total = sum(by_head(slopes[k] * (written[k + 1] - written[k])) for k in range(200))
    found = attention_conductance(one.model, one.tokenizer, one.inputs, one.measure, layers=[LAYER], steps=200)
    assert torch.allclose(found.layers[LAYER].scores, total, atol=2e-4)
    assert found.converged
    assert found.layers[LAYER].steps == 400  # the error is how far doubling moves the scores


def test_conductance_of_a_whole_layer_sums_to_the_effect(one):
    found = layer_conductance(one.model, one.tokenizer, one.inputs, one.measure, LAYER)
    plain = {**one.inputs, "input_ids": baseline(one.tokenizer, one.inputs["input_ids"])}
    with torch.inference_mode():
        effect = (one.measure(one.model(**one.inputs)) - one.measure(one.model(**plain))).item()
    assert found.converged
    assert found.scores.sum().item() == pytest.approx(effect, rel=0.05)
    assert len(found.table()) == 9
    assert found.method == "conductance of layer 1"


def test_the_second_text_stays_as_it_is(one):
    """The similarity as a function of the first text is that of both, the shorter one padded."""
    both = case(one.model, one.tokenizer, "the cats sat the cat .", second="cats the .")
    assert (both.inputs["attention_mask"][1] == 0).any()
    with torch.inference_mode():
        alone_ = one.measure(one.model(**one.inputs)).item()
        assert alone_ == pytest.approx(both.measure(both.model(**both.inputs)).item(), abs=1e-6)


def test_error_of_a_layers_conductance_is_relative_to_the_effect(one):
    options = {"steps": 2, "most": 2}
    found = layer_conductance(one.model, one.tokenizer, one.inputs, one.measure, LAYER, **options)
    plain = {**one.inputs, "input_ids": baseline(one.tokenizer, one.inputs["input_ids"])}
    with torch.inference_mode():
        effect = (one.measure(one.model(**one.inputs)) - one.measure(one.model(**plain))).item()
    assert found.steps == 2
    assert found.error == pytest.approx(abs(found.scores.sum().item() - effect) / abs(effect), rel=1e-3)
    assert found.error > 0.01


def test_every_layer_has_to_converge():
    good, bad = (Carried(torch.zeros(2), 1.0, error, 8) for error in (0.01, 0.2))
    assert HeadAttribution("m", {0: good}).remark == "largest error 1 % of the effect, after at most 8 steps a layer"
    found = HeadAttribution("m", {0: good, 1: bad})
    assert not found.converged
    assert found.remark.startswith("NOT converged in layers 1: largest error 20 % of the effect")


def test_what_has_not_converged_says_so(one):
    found = attention_conductance(one.model, one.tokenizer, one.inputs, one.measure, layers=[0], steps=5, most=3)
    assert not found.converged
    assert found.remark.startswith("NOT converged in layers 0: largest error inf %")


def test_a_decoder_layer(smollm2):
    model, tokenizer = smollm2
    inputs = tokenizer("Paris is in", return_tensors="pt")
    found = integrated_attention(model, inputs, logit(4649), layers=[29], steps=8, most=8)
    silenced = ablate(model, inputs, [(29, head) for head in range(9)], logit(4649))
    assert found.layers[29].effect == pytest.approx(-silenced.change, abs=1e-4)
    assert found.layers[29].error < 0.05


def test_progress_counts_layers_and_can_stop(one):
    seen = []
    integrated_attention(
        one.model, one.inputs, one.measure, layers=[0, 1], steps=8, most=8, progress=lambda *step: seen.append(step)
    )
    assert seen[0] == (1, 16)
    assert seen[-1] == (16, 16)

    def stop(done, total):
        raise InterruptedError

    for work in (
        lambda: integrated_attention(one.model, one.inputs, one.measure, progress=stop),
        lambda: attention_conductance(one.model, one.tokenizer, one.inputs, one.measure, progress=stop),
        lambda: layer_conductance(one.model, one.tokenizer, one.inputs, one.measure, 0, progress=stop),
    ):
        with pytest.raises(InterruptedError):
            work()
    assert all(parameter.requires_grad for parameter in one.model.parameters())


def test_bad_input(one):
    with pytest.raises(UsageError, match="layer 6 does not attend: the layers of BertModel that do are 0, 1"):
        integrated_attention(one.model, one.inputs, one.measure, layers=[6])
    with pytest.raises(UsageError, match="layer 9 does not attend"):
        layer_conductance(one.model, one.tokenizer, one.inputs, one.measure, 9)
    both = case(one.model, one.tokenizer, "the cat", second="the cat")
    with pytest.raises(UsageError, match="gradients take one text without padding"):
        attention_conductance(both.model, both.tokenizer, both.inputs, both.measure)
