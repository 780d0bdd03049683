import pytest
import torch

from attnviz.analysis.attribution import attribute_tokens
from attnviz.analysis.measures import cosine, logit
from attnviz.analysis.paths import baseline
from attnviz.errors import UsageError


@pytest.fixture(scope="module")
def case(minilm):
    model, tokenizer = minilm
    inputs = tokenizer(["The muddy bank of a river.", "A river side."], return_tensors="pt", padding=True)
    return model, tokenizer, inputs, cosine(inputs["attention_mask"])


def test_integrated_gradients_sum_to_the_effect(case):
    model, tokenizer, inputs, measure = case
    found = attribute_tokens(model, tokenizer, inputs, measure)
    plain = {**inputs, "input_ids": inputs["input_ids"].clone()}
    plain["input_ids"][:1] = baseline(tokenizer, inputs["input_ids"][:1])
    with torch.inference_mode():
        effect = (measure(model(**inputs)) - measure(model(**plain))).item()
    assert found.converged
    assert found.error < 1e-3
    assert found.scores.sum().item() == pytest.approx(effect, abs=1e-3 * abs(effect) + 1e-6)
    assert [token.label for token in found.tokens][:3] == ["[CLS]", "the", "muddy"]


def test_the_same_under_eager_attention_and_our_kernel(case):
    from attnviz.recording import record

    model, tokenizer, inputs, measure = case
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    eager = attribute_tokens(model, tokenizer, inputs, measure).scores
    model.set_attn_implementation(before)
    with record(model):
        ours = attribute_tokens(model, tokenizer, inputs, measure).scores
    assert torch.allclose(eager, ours, atol=1e-5)


def test_ablation_is_the_change_when_a_token_is_replaced(case):
    model, tokenizer, inputs, measure = case
    found = attribute_tokens(model, tokenizer, inputs, measure, method="ablation")
    changed = {**inputs, "input_ids": inputs["input_ids"].clone()}
    changed["input_ids"][0, 2] = tokenizer.pad_token_id
    with torch.inference_mode():
        wanted = (measure(model(**inputs)) - measure(model(**changed))).item()
    assert found.scores[2].item() == pytest.approx(wanted, abs=1e-6)
    assert found.scores[0].item() == 0  # special tokens stay
    assert found.remark == "each token replaced by the padding token, one at a time"


def test_what_has_not_converged_says_so(smollm2):
    model, tokenizer = smollm2
    inputs = tokenizer("Paris is in", return_tensors="pt")
    found = attribute_tokens(model, tokenizer, inputs, logit(5), method="integrated gradients", steps=2, most=3)
    assert not found.converged
    assert found.steps == 2
    assert found.remark.startswith("NOT converged: error of the sum ")


def test_decoders_are_explained_by_ablation_unless_asked_otherwise(smollm2, case):
    model, tokenizer = smollm2
    assert attribute_tokens(model, tokenizer, tokenizer("Paris", return_tensors="pt"), logit(5)).method == "ablation"
    model, tokenizer, inputs, measure = case
    assert attribute_tokens(model, tokenizer, inputs, measure, steps=2, most=2).method == "integrated gradients"


def test_bad_input(case):
    model, tokenizer, inputs, measure = case
    with pytest.raises(UsageError, match="method must be one of integrated gradients, ablation"):
        attribute_tokens(model, tokenizer, inputs, measure, method="shap")
