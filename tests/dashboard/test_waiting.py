"""What pages show of jobs: one line for what fails, progress and a way out, nothing left behind."""

from threading import Event, Timer

from dashboard.pages import BANKS, charts
from streamlit.util import calc_hash

from attnviz.dashboard import runs, waiting
from attnviz.dashboard.safe import plain
from attnviz.errors import ModelError


def test_a_text_whose_trace_does_not_fit_is_one_line(visit, recorded, monkeypatch):
    monkeypatch.setenv("ATTNVIZ_TRACE_BUDGET", "1000")
    app = visit("heads", text=BANKS)
    assert recorded == []
    assert len(app.error) == 1
    assert "this server keeps 1000 bytes in all" in app.error[0].value.replace("\\", "")


def test_a_text_beyond_the_limit_is_one_line(visit, monkeypatch):
    monkeypatch.setenv("ATTNVIZ_MAX_TOKENS", "5")
    app = visit("heads", text=BANKS)
    line = "this text has 7 tokens, this server takes 5: shorten it, or start the dashboard with a larger --max-tokens"
    assert [error.value for error in app.error] == [plain(line)]


def test_a_long_text_waits_for_a_click(visit, recorded):
    text = "w " * 1100
    app = visit("heads", text=text)
    assert recorded == []
    assert [line.split("\\.")[0] for line in [app.info[0].value]] == ["This text is 1\\,100 tokens long"]
    assert "all its maps" in app.info[0].value
    app.button[0].click().run()
    assert len(recorded) == 1
    assert charts(app) >= 1


def test_a_failed_run_says_why_and_can_be_started_again(visit, monkeypatch):
    def fail(*_):
        raise ModelError("the model is incomplete: fetch it again")

    recorded = runs.record
    monkeypatch.setattr(runs, "record", fail)
    app = visit("heads", text=BANKS)
    assert [error.value for error in app.error] == [plain("the model is incomplete: fetch it again")]
    monkeypatch.setattr(runs, "record", recorded)
    app.button[0].click().run()
    assert not app.error
    assert charts(app) >= 1


def test_an_unforeseen_failure_shows_no_traceback(visit, monkeypatch):
    monkeypatch.setattr(runs, "record", lambda *_: 1 / 0)
    app = visit("heads", text=BANKS)
    assert [error.value for error in app.error] == ["This page failed; the log of the server says why."]


def test_a_long_job_shows_progress_and_can_be_cancelled(visit, monkeypatch):
    begun = Event()

    def endless(model, tokenizer, wanted, job):
        begun.set()
        while True:
            job.step("Recording every head of minilm", 0.5)

    record = runs.record
    monkeypatch.setattr(runs, "record", endless)
    monkeypatch.setattr(waiting, "UNSEEN", 0.01)
    stop = Timer(1.0, lambda: [job.cancel() for job in runs.queue()._jobs.values()])
    stop.start()
    app = visit("heads", text=BANKS)
    assert begun.is_set()
    assert [info.value for info in app.info] == ["Cancelled."]
    monkeypatch.setattr(runs, "record", record)
    next(button for button in app.button if button.label == "Start again").click().run()
    assert not app.info
    assert all(button.label != "Start again" for button in app.button)
    assert charts(app) >= 1


def cancelled(visit, monkeypatch, page, text):
    """A page whose recording was cancelled; the next one is as quick as usual."""

    def endless(model, tokenizer, wanted, job):
        while True:
            job.step("Recording every head of minilm", 0.5)

    record = runs.record
    monkeypatch.setattr(runs, "record", endless)
    monkeypatch.setattr(waiting, "UNSEEN", 0.01)
    app = visit(page, text=text)
    stop = Timer(0.5, lambda: [job.cancel() for job in runs.queue()._jobs.values()])
    stop.start()
    if len(text.split()) > 1024:
        app.button[0].click().run()
    monkeypatch.setattr(runs, "record", record)
    assert [info.value for info in app.info] == ["Cancelled."]
    return app


def test_the_next_visit_says_nothing_of_what_was_cancelled(visit, monkeypatch):
    app = cancelled(visit, monkeypatch, "heads", "w " * 1100)
    app._page_hash = calc_hash("map")
    app.run()
    assert [line.value.split("\\.")[0] for line in app.info] == ["This text is 1\\,100 tokens long"]
    assert [button.label for button in app.main.button] == ["Record 1,100 tokens"]


def test_what_was_cancelled_starts_again_without_asking_again(visit, monkeypatch):
    app = cancelled(visit, monkeypatch, "heads", "w " * 1100)
    next(button for button in app.button if button.label == "Start again").click().run()
    assert not app.info
    assert charts(app) >= 1


def test_a_run_that_made_room_for_others_is_recorded_again(visit, recorded, monkeypatch):
    monkeypatch.setenv("ATTNVIZ_TRACE_BUDGET", "1")
    monkeypatch.setattr(runs, "cost", lambda *_: None)
    app = visit("heads", text=BANKS)
    app.text_area(key="text").set_value("other words").run()
    app.text_area(key="text").set_value(BANKS).run()
    assert recorded == [BANKS, "other words", BANKS]
    assert [toast.value for toast in app.toast] == ["This run had made room for others; it is recorded again."]
