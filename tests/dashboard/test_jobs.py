from threading import Event, Thread

import pytest
import torch

from attnviz.dashboard import jobs
from attnviz.dashboard.jobs import LOADING, READING, SHORT, CancelledError, Job, Queue, watched


def finished(job):
    assert job.wait(10)
    return job


def test_a_visitor_gets_the_same_job_for_the_same_key():
    queue, made = Queue(), []
    first = queue.submit("ann", "key", made.append)
    assert queue.submit("ann", "key", made.append) is first
    assert finished(first).error is None
    assert made == [first]


def test_asking_for_something_else_cancels_what_runs():
    queue, started = Queue(), Event()

    def endless(job):
        while True:
            started.set()
            job.step("still here")

    first = queue.submit("ann", 1, endless)
    assert started.wait(10)
    queue.submit("ann", 2, lambda _: None)
    assert isinstance(finished(first).error, CancelledError)


def test_one_visitor_leaves_anothers_job_alone():
    queue, go, result = Queue(), Event(), []
    job = queue.submit("ann", 1, lambda _: result.append(go.wait(10)))
    queue.submit("bob", 2, lambda _: None)
    queue.leave("bob")
    go.set()
    assert finished(job).error is None
    assert result == [True]


def test_jobs_run_one_after_the_other():
    queue, go, order = Queue(), Event(), []
    first = queue.submit("ann", 1, lambda _: (go.wait(10), order.append(1)))
    second = queue.submit("bob", 2, lambda _: order.append(2))
    assert not second.wait(0.05)
    assert second.stage == "Waiting for the runs before this one"
    go.set()
    finished(first), finished(second)
    assert order == [1, 2]


def test_what_goes_wrong_is_kept():
    job = Queue().submit("ann", 1, lambda _: 1 / 0)
    assert isinstance(finished(job).error, ZeroDivisionError)


def test_a_failed_job_is_not_tried_again_until_the_visitor_leaves():
    queue = Queue()
    job = finished(queue.submit("ann", 1, lambda _: 1 / 0))
    assert queue.submit("ann", 1, lambda _: None) is job
    queue.leave("ann")
    assert queue.submit("ann", 1, lambda _: None) is not job


def test_progress_of_a_model_and_no_trace_of_the_watching():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
    job, seen = Job("key"), []
    job.step = lambda stage, fraction=0.0: seen.append(round(fraction, 2))
    with watched(model, job, "running"):
        model(torch.zeros(1, 2))
    assert seen == [0.33, 0.67, 1.0]
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_cancel_ends_a_forward_pass():
    model, job = torch.nn.Sequential(torch.nn.Linear(2, 2)), Job("key")
    job.cancel()
    with pytest.raises(CancelledError), watched(model, job, "running"):
        model(torch.zeros(1, 2))
    assert not model[0]._forward_pre_hooks


def test_lanes_do_not_wait_for_each_other_and_models_load_one_at_a_time():
    queue, go, order = Queue(), Event(), []
    long = queue.submit("ann", 1, lambda _: go.wait(10))
    first = queue.submit("bob", 2, lambda _: (go.wait(10), order.append(2)), LOADING)
    second = queue.submit("cid", 3, lambda _: order.append(3), LOADING)
    assert finished(queue.submit("dee", 4, lambda _: 4, READING)).value == 4
    assert finished(queue.submit("eve", 5, lambda _: 5, SHORT)).value == 5
    assert not long.done
    assert not second.done
    go.set()
    finished(first), finished(second), finished(long)
    assert order == [2, 3]


def test_runs_of_models_have_all_threads_whatever_other_threads_set(monkeypatch):
    monkeypatch.setattr(jobs, "TORCH_THREADS", 2)
    other = Thread(target=torch.set_num_threads, args=(1,))
    other.start()
    other.join()
    assert finished(Queue().submit("ann", 1, lambda _: torch.get_num_threads())).value == 2
    torch.set_num_threads(1)
