"""The callback protocol of scikit-learn, and fits that leave no trace when they fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone

from representer import (
    ConditionalMeanEmbedding,
    DeepKernelClassifier,
    DeepKernelPCA,
    DeepKernelRegressor,
    EmbeddingClassifier,
    KernelAutoencoder,
    OperatorRidge,
    StructuredPredictor,
)
from representer.estimators.base import KernelLearner, fitting
from representer.optimize import lbfgs


class Recorder:
    """Writes down what it is called with; can stop after some iterations."""

    def __init__(self, stop_after=None):
        self.calls = []
        self.stop_after = stop_after

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        self.calls.append(("begin", context.task_name, context.task_id))

    def on_fit_task_end(self, estimator, context):
        self.calls.append(("end", context.task_name, context.task_id))
        return context.task_name == "iteration" and context.task_id + 1 == self.stop_after


class Descent(KernelLearner):
    """A learner that minimises a polynomial."""

    @fitting
    def fit(self, X=None, y=None, fail=False):
        if fail:
            raise RuntimeError("broken")
        self.result_ = lbfgs(
            lambda points: ((points**4).sum(-1), 4 * points**3),
            torch.full((3,), 2.0, dtype=torch.float64),
            callback=self._iteration_callback(),
        )
        return self


def test_iterations_are_subtasks_that_can_stop_the_fit():
    free, stopped = Recorder(), Recorder(stop_after=3)
    assert Descent().set_callbacks(free).fit().result_.converged
    model = Descent().set_callbacks(stopped).fit()
    assert not model.result_.converged and "callback" in model.result_.message
    iterations = [call for call in stopped.calls if call[:2] == ("end", "iteration")]
    assert iterations == [("end", "iteration", i) for i in range(3)]
    assert stopped.calls[0] == "setup" and stopped.calls[-1] == "teardown"
    assert stopped.calls[1] == ("begin", "fit", 0) and stopped.calls[-2] == ("end", "fit", 0)


def test_teardown_happens_whatever_happens():
    recorder = Recorder()
    with pytest.raises(RuntimeError, match="broken"):
        Descent().set_callbacks(recorder).fit(fail=True)
    assert recorder.calls[-1] == "teardown"


def test_only_callback_instances_are_taken():
    for wrong in (np.mean, Recorder, object()):
        with pytest.raises(TypeError):
            Descent().set_callbacks(wrong)


LEARNERS = {
    "OperatorRidge": OperatorRidge("rbf", alpha=0.1),
    "DeepKernelRegressor": DeepKernelRegressor([1], max_iter=2, n_restarts=1, random_state=0),
    "DeepKernelClassifier": DeepKernelClassifier([1], max_iter=2, n_restarts=1, random_state=0),
    "KernelAutoencoder": KernelAutoencoder(1, alpha=0.1, max_iter=2, n_restarts=1, random_state=0),
    "StructuredPredictor": StructuredPredictor("rbf", "rbf", alpha=0.1),
    "ConditionalMeanEmbedding": ConditionalMeanEmbedding("rbf", alpha=0.1, criterion=None),
    "EmbeddingClassifier": EmbeddingClassifier("rbf", max_iter=2, random_state=0),
    "DeepKernelPCA": DeepKernelPCA([2, 1], random_state=0),
}


def test_what_a_failing_fit_has_set_is_taken_back():
    class Learner(KernelLearner):
        @fitting
        def fit(self, X, fail=False):
            self.__dict__.pop("old_", None)
            self.X_fit_ = X
            if fail:
                raise KeyboardInterrupt
            self.old_ = X
            return self

    model = Learner().fit(1)
    with pytest.raises(KeyboardInterrupt):
        model.fit(2, fail=True)
    assert (model.X_fit_, model.old_) == (1, 1)
    assert model.fit(3).X_fit_ == 3


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", LEARNERS)
def test_a_fit_that_fails_leaves_the_learner_as_it_was(name):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 3)), np.arange(20) % 2
    model = clone(LEARNERS[name]).fit(X, y)
    before = {key: value for key, value in vars(model).items() if not key.startswith("_cached")}
    answer = "predict" if hasattr(model, "predict") else "transform"
    expected = getattr(model, answer)(X)
    with pytest.raises(ValueError):  # with new inputs, which are good, and too few targets; or with bad inputs
        model.fit(X[::-1], y[:5]) if hasattr(model, "predict") else model.fit(np.full((9, 3), np.nan))
    assert all(vars(model)[key] is value for key, value in before.items())
    np.testing.assert_array_equal(getattr(model, answer)(X), expected)
