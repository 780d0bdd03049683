import pytest
import torch

from attnviz.analysis import measures
from attnviz.analysis.cases import alone, case
from attnviz.analysis.gradients import frozen, gradients
from attnviz.errors import UsageError
from attnviz.models import load_model

TEXT = "The capital of France is the city of Paris, and the capital of Italy is"


@pytest.fixture(scope="module")
def both(smollm2):
    """Our gradients and, from the model's own eager attention, weights and their gradients."""
    model, tokenizer = smollm2
    inputs = tokenizer(TEXT, return_tensors="pt")
    measure = measures.logit(tokenizer(" Rome", add_special_tokens=False)["input_ids"][0])
    found = gradients(model, inputs, measure, tokenizer=tokenizer)
    eager, _ = load_model("smollm2")
    eager.set_attn_implementation("eager")
    output = eager(**inputs, output_attentions=True)
    given = torch.autograd.grad(measure(output), output.attentions)
    return found, [weights[0].detach() for weights in output.attentions], [gradient[0] for gradient in given]


def test_gradient_times_attention_equals_eager_autograd(both):
    found, weights, given = both
    for layer in range(30):
        for head in range(9):
            wanted = weights[layer][head] * given[layer][head]
            assert torch.allclose(found.attention_gradient(layer, head), wanted, atol=1e-4)


@pytest.mark.slow
def test_gradient_times_attention_equals_eager_autograd_at_512_tokens(smollm2):
    model, tokenizer = smollm2
    text = "The keeper wrote down the weather and the gulls. " * 64
    inputs = {"input_ids": tokenizer(text, return_tensors="pt")["input_ids"][:, :512]}
    measure = measures.logit(1)
    found = gradients(model, inputs, measure)
    eager, _ = load_model("smollm2")
    eager.set_attn_implementation("eager")
    output = eager(**inputs, output_attentions=True)
    given = torch.autograd.grad(measure(output), output.attentions)
    for layer, (weights, gradient) in enumerate(zip(output.attentions, given, strict=True)):
        for head in (0, layer % 9, 8):
            wanted = (weights * gradient)[0, head].detach()
            assert torch.allclose(found.attention_gradient(layer, head), wanted, atol=1e-4)


def test_column_sums_need_no_map(both):
    found, weights, given = both
    for layer, head in ((0, 0), (17, 4), (29, 8)):
        wanted = (weights[layer][head] * given[layer][head]).sum(0)
        assert torch.allclose(found.received(layer, head), wanted, atol=1e-4)


def test_importance_is_the_sum_of_weight_times_gradient(both):
    found, weights, given = both
    table = found.importance().set_index(["layer", "head"])["importance"]
    for layer, head in ((1, 5), (11, 7), (20, 0)):
        wanted = (weights[layer][head] * given[layer][head]).sum().abs().item()
        assert table[(layer, head)] == pytest.approx(wanted, rel=1e-3, abs=1e-4)


def test_relevance_equals_the_dense_recursion(both):
    found, weights, given = both
    identity = relevance = torch.eye(weights[0].shape[-1])
    for layer in range(30):
        relevance = relevance + (weights[layer] * given[layer]).clamp(min=0).mean(0) @ relevance
    for token in (-1, 3):
        assert torch.allclose(found.relevance(token).scores, (relevance - identity)[token], atol=1e-3)


def test_relevance_of_a_sentence_embedding_is_that_of_all_its_rows(minilm):
    """An encoder's similarity reads the mean of all states, so no single token may hold all the relevance."""
    model, tokenizer = minilm
    one = alone(case(model, tokenizer, "The capital of France is", second="Paris is a city"))
    found = gradients(model, one.inputs, one.measure, tokenizer=tokenizer)
    rows = torch.stack([found.relevance(token).scores for token in range(7)])
    assert torch.allclose(found.relevance().scores, rows.mean(0), atol=1e-6)
    assert found.relevance().scores.max() < 0.5 * found.relevance().scores.sum()


def test_parameters_are_frozen_only_inside_the_block():
    layer = torch.nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    with frozen(layer):
        assert not layer.weight.requires_grad
    with pytest.raises(UsageError), frozen(layer):
        raise UsageError("stopped")
    assert (layer.weight.requires_grad, layer.bias.requires_grad) == (True, False)


def test_padding_is_refused(minilm):
    model, tokenizer = minilm
    inputs = tokenizer(["a", "a longer text"], return_tensors="pt", padding=True)
    with pytest.raises(UsageError, match="gradients take one text without padding"):
        gradients(model, inputs, measures.cosine(inputs["attention_mask"]))
