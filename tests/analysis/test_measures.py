from types import SimpleNamespace

import pytest
import torch

from attnviz.analysis.measures import cosine, logit, logit_difference, loss, measured, measured_each
from attnviz.errors import UsageError
from tests.tiny_models import llama

IDS = torch.tensor([[5, 9, 17, 30], [8, 2, 40, 7]])


@pytest.fixture(scope="module")
def model():
    return llama()


@pytest.mark.parametrize("position", [-1, -3, 0, 2])
def test_only_the_logits_that_are_read_are_computed(model, position):
    sizes = []
    hook = model.lm_head.register_forward_hook(lambda _, __, output: sizes.append(tuple(output.shape[:2])))
    for measure in (logit(7, position), logit_difference(7, 3, position)):
        wanted = measure(model(IDS))
        assert torch.allclose(measured(model, {"input_ids": IDS}, measure), wanted, atol=1e-6)
    hook.remove()
    assert sizes == [(2, 4), (2, 1)] * 2
    difference = logit_difference(7, 3, position)(model(IDS))
    assert difference == logit(7, position)(model(IDS)) - logit(3, position)(model(IDS))


def test_other_measures_get_the_whole_output(model):
    measure = loss(IDS, start=2)
    assert measured(model, {"input_ids": IDS}, measure) == measure(model(IDS))


@pytest.mark.parametrize("measure", [logit(7, 1), lambda output: output.logits[0, 2].sum()], ids=["logit", "own"])
def test_each_sequence_is_measured_as_if_alone(model, measure):
    each = measured_each(model, {"input_ids": IDS}, measure)
    alone = [measured(model, {"input_ids": ids[None]}, measure) for ids in IDS]
    assert torch.allclose(each, torch.stack(alone), atol=1e-6)


def test_loss_is_the_mean_of_minus_log_probabilities(model):
    with torch.no_grad():
        probabilities = torch.log_softmax(model(IDS).logits, -1)
        wanted = (
            -(probabilities[0, 1, 17] + probabilities[0, 2, 30] + probabilities[1, 1, 40] + probabilities[1, 2, 7]) / 4
        )
        assert loss(IDS, start=2)(model(IDS)).item() == pytest.approx(wanted.item(), rel=1e-5)


def test_a_model_without_logits(minilm):
    model, tokenizer = minilm
    with pytest.raises(UsageError, match="this model predicts no tokens"):
        measured(model, tokenizer("A bank.", return_tensors="pt"), logit(3))


def test_cosine_of_means_without_padding():
    """Means (1, 1) of the first text and (2, 0) of the second, whose last state is padding: 1 / sqrt(2)."""
    states = torch.tensor([[[2.0, 0], [0, 2], [1, 1]], [[1.0, 0], [3, 0], [9, 9]]])
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert cosine(mask)(SimpleNamespace(last_hidden_state=states)).item() == pytest.approx(0.5**0.5)
    with pytest.raises(UsageError, match="cosine similarity needs an encoder's last hidden states of at least two"):
        cosine(mask)(SimpleNamespace(last_hidden_state=states[:1]))


def test_logits_and_their_difference_at_a_position():
    logits = torch.tensor([[[1.0, 2, 5], [7, 0, 4]]])
    output = SimpleNamespace(logits=logits)
    assert [logit(2)(output), logit(0, 0)(output), logit_difference(0, 2)(output)] == [4, 1, 3]
