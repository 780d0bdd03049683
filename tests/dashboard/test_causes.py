"""The page of causes agrees with the analysis it shows."""

import pytest
import torch
from dashboard.models import TEXT, write_pair
from traces import make_trace

from attnviz import load_model
from attnviz.analysis.ablation import ablate, ablate_each
from attnviz.analysis.cases import alone, case, next_tokens, only_token
from attnviz.analysis.flow import rollout
from attnviz.analysis.gradients import gradients
from attnviz.dashboard import causing, lines
from attnviz.dashboard.causing import LIMITS
from attnviz.dashboard.lines import Asked
from attnviz.dashboard.runs import Wanted
from attnviz.errors import UsageError

SECOND = "the cat ."


def shown(app):
    return app.dataframe[0].value


def test_rollout_needs_no_model(visit):
    app = visit("causes", text="The bank of the river", token="3")
    assert app.caption[0].value in LIMITS.values()
    assert shown(app)["score"].sum() == pytest.approx(1)
    assert sorted(shown(app)["token"]) == sorted(["The", "bank", "of", "the", "river"])


def test_the_last_word_is_looked_at_first(visit):
    assert visit("causes", text="The bank of the river .").number_input(key="token").value == 4


def test_relevance_of_a_decoder_is_that_of_the_library(real, model_folder):
    app = real("causes", model="llama", method="Relevance", token="6")
    model, tokenizer = load_model(model_folder / "llama")
    found = case(model, tokenizer, TEXT)
    expected = gradients(model, found.inputs, found.measure, tokenizer=tokenizer).relevance(6).table()
    assert shown(app)["score"].tolist() == pytest.approx(expected["score"].tolist())


def test_a_chosen_token_is_explained(real, model_folder):
    app = real("causes", model="llama", method="This head", target="sat", layer="1", head="2")
    model, tokenizer = load_model(model_folder / "llama")
    found = case(model, tokenizer, TEXT, target="sat")
    effect = ablate(model, found.inputs, [(1, 2)], found.measure)
    metrics = {metric.label: metric.value for metric in app.metric}
    assert metrics["Change"] == f"{effect.change:+.4f}"
    assert "logit of 'sat' as next token" in app.text[-1].value


def test_every_head_waits_for_a_click(real, model_folder):
    app = real("causes", model="bert", method="Every head", second=SECOND)
    assert not app.dataframe
    app.button[-1].click().run()
    model, tokenizer = load_model(model_folder / "bert")
    found = case(model, tokenizer, TEXT, second=SECOND)
    expected = ablate_each(model, found.inputs, found.measure)
    assert shown(app)["change"].tolist() == pytest.approx(expected["change"].tolist(), abs=1e-4)
    app.selectbox(key="layer").set_value(1).run()
    assert app.dataframe, "the result stays while another head is looked at"


def test_integrated_gradients_show_their_error(real):
    app = real("causes", model="bert", method="Integrated gradients", second=SECOND)
    app.button[-1].click().run()
    told = [text.value for text in app.text] + [warning.value for warning in app.warning]
    assert any("error of the sum" in line for line in told)


def test_each_token_of_a_decoder(real):
    app = real("causes", model="llama", method="Each token")
    app.button[-1].click().run()
    assert len(shown(app)) == 11
    assert not app.error


def test_a_saved_trace_has_no_model_to_run(visit, monkeypatch, tmp_path):
    make_trace().save(tmp_path / "run.attn")
    monkeypatch.setenv("ATTNVIZ_MODEL_ROOT", str(tmp_path))
    app = visit("causes", model="run.attn", method="Relevance")
    assert [info.value for info in app.info] == [
        "A saved trace holds no model to run again: choose a model on the left."
    ]


def test_the_command_of_one_head():
    asked = Asked("This head", 0, "zero", {"target": " x"})
    _, command = lines.causes(Wanted("smollm2", "a b"), make_trace()[1, 2], asked, "charts.heatmap(trace[1, 2])")
    words = "attnviz ablate smollm2 '--target= x' --heads=1.2 --how=zero -o causes-this-head.csv 'a b'"
    assert command == words


def test_alone_is_the_same_number_of_one_text(model_folder):
    model, tokenizer = load_model(model_folder / "bert")
    both = case(model, tokenizer, TEXT, second=SECOND)
    one = alone(both)
    with torch.inference_mode():
        values = [found.measure(model(**found.inputs)).item() for found in (both, one)]
    assert len(one.inputs["input_ids"]) == 1
    assert values[0] == pytest.approx(values[1], abs=1e-6)


def test_next_tokens_are_probabilities(model_folder):
    model, tokenizer = load_model(model_folder / "llama")
    found = next_tokens(model, tokenizer(TEXT, return_tensors="pt"), 100)
    assert sum(share for _, share in found) == pytest.approx(1)
    assert [share for _, share in found] == sorted((share for _, share in found), reverse=True)


def test_an_empty_target_is_refused(model_folder):
    _, tokenizer = load_model(model_folder / "llama")
    with pytest.raises(UsageError, match=r"^the next token '' is empty: give at least one character$"):
        only_token(tokenizer, "")


def test_a_model_without_tokens_needs_a_second_text(model_folder):
    model, tokenizer = load_model(model_folder / "bert")
    with pytest.raises(UsageError, match="give a second text to compare with"):
        case(model, tokenizer, TEXT)
    with pytest.raises(UsageError, match="the text is empty"):
        case(model, tokenizer, " ")


def test_progress_ends_a_cancelled_job():
    from attnviz.dashboard.jobs import CancelledError, Job

    job = Job("key")
    progress = causing.counted(job, "Silencing")
    progress(1, 4)
    assert (job.stage, job.fraction) == ("Silencing: 1 of 4", 0.25)
    job.cancel()
    with pytest.raises(CancelledError):
        progress(2, 4)


def test_rollout_scores_are_those_of_the_trace(visit):
    app = visit("causes", text="a b c", token="1")
    expected = rollout(make_trace(["a", "b", "c"]), 1).table()
    assert shown(app)["score"].tolist() == pytest.approx(expected["score"].tolist())


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
def test_an_encoder_decoder_model_is_asked_about_the_attention_that_is_shown(real, tmp_path, monkeypatch, kind):
    folder = write_pair(tmp_path)
    monkeypatch.setenv("ATTNVIZ_MODEL_ROOT", str(folder))
    app = real("causes", model="t5", method="This head", kind=kind, layer="1", head="0")
    assert not app.error
    model, tokenizer = load_model(folder / "t5")
    found = case(model, tokenizer, TEXT)
    effect = ablate(model, found.inputs, [(1, 0)], found.measure, kind=kind)
    metrics = {metric.label: metric.value for metric in app.metric}
    assert metrics["Change"] == f"{effect.change:+.4f}"
    asked = Asked("This head", question={"target": "cat"}, kind=kind)
    python, command = lines.causes(Wanted("t5", TEXT), make_trace()[1, 0], asked, "charts.heatmap(trace[1, 0])")
    assert f'[(1, 0)], asked.measure, kind="{kind}")' in python
    assert f"--kind={kind}" in command
