import pytest
import torch

from attnviz.analysis.continuation import attribute_continuation
from attnviz.errors import UsageError

TEXT, TARGET = "The capital of France is", " Paris, the city"


def log_probabilities(model, ids, following):
    """Of each next token, after the text and the next tokens before it."""
    with torch.inference_mode():
        logits = model(input_ids=torch.cat([ids, following])[None]).logits[0]
    rows = torch.log_softmax(logits[len(ids) - 1 : -1], -1)
    return rows[torch.arange(len(following)), following]


def test_scores_are_changes_of_log_probability(smollm2):
    model, tokenizer = smollm2
    seen = []
    found = attribute_continuation(model, tokenizer, TEXT, TARGET, progress=lambda *step: seen.append(step))
    ids, following = (
        tokenizer(text, return_tensors="pt", add_special_tokens=False)["input_ids"][0] for text in (TEXT, TARGET)
    )
    assert found.scores.shape == (len(following), len(ids))
    whole = log_probabilities(model, ids, following)
    for place in (0, 3):
        changed = ids.clone()
        changed[place] = tokenizer.pad_token_id
        assert torch.allclose(found.scores[:, place], whole - log_probabilities(model, changed, following), atol=1e-4)
    assert torch.allclose(found.totals, found.scores.sum(0))
    assert found.tokens[int(found.scores[0, :-1].argmax())].text.strip() == "France"
    assert seen == [(done, len(ids) + 1) for done in range(1, len(ids) + 2)]
    row = found.table().iloc[0]
    assert row["score"] == pytest.approx(found.scores[row["next_position"], row["position"]].item())


def test_without_a_target_the_model_writes_it(smollm2):
    model, tokenizer = smollm2
    seen = []
    found = attribute_continuation(
        model, tokenizer, "Two and two are", count=2, progress=lambda *step: seen.append(step)
    )
    assert seen == [(done, 7) for done in range(1, 8)]  # two tokens, then the text and its four tokens one by one
    assert len(found.following) == 2
    wanted = model.generate(**tokenizer("Two and two are", return_tensors="pt"), max_new_tokens=2, do_sample=False)
    assert [token.id for token in found.following] == wanted[0, -2:].tolist()


def test_special_tokens_stay_and_score_nothing(smollm2):
    model, tokenizer = smollm2
    found = attribute_continuation(model, tokenizer, f"{tokenizer.bos_token}One two", " three")
    assert found.scores[0, 0] == 0
    assert found.scores[0, 1:].all()


def test_it_can_be_stopped(smollm2):
    def stop(done, total):
        raise InterruptedError

    for target in (None, TARGET):
        with pytest.raises(InterruptedError):
            attribute_continuation(*smollm2, TEXT, target, progress=stop)


def test_bad_input(minilm, smollm2):
    with pytest.raises(UsageError, match="this model predicts no tokens: attribute the similarity"):
        attribute_continuation(*minilm, TEXT, TARGET)
    with pytest.raises(UsageError, match="the target is empty"):
        attribute_continuation(*smollm2, TEXT, "")
    with pytest.raises(UsageError, match="the text is empty"):
        attribute_continuation(*smollm2, "", TARGET)
