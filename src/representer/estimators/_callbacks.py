"""scikit-learn's callback protocol (1.9 and later), and the part of it that older versions need."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self

from representer.optimize import HistoryEntry

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # scikit-learn < 1.9

    class _Context:
        """A task of a fit: what callbacks are called with."""

        def __init__(
            self, callbacks: list[Any], task_name: str, task_id: int = 0, parent: _Context | None = None
        ):
            self._callbacks = callbacks
            self.task_name = task_name
            self.task_id = task_id
            self.parent = parent
            self._children = 0

        def subcontext(self, task_name: str = "") -> _Context:
            self._children += 1
            return _Context(self._callbacks, task_name, self._children - 1, self)

        def _call(self, hook: str, estimator: Any) -> bool:
            return any(
                [
                    bool(getattr(callback, hook)(estimator=estimator, context=self))
                    for callback in self._callbacks
                ]
            )

        def call_on_fit_task_begin(self, estimator: Any) -> bool:
            return self._call("on_fit_task_begin", estimator)

        def call_on_fit_task_end(self, estimator: Any) -> bool:
            return self._call("on_fit_task_end", estimator)

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """``set_callbacks``, with the hooks of scikit-learn 1.9's protocol."""

        def set_callbacks(self, *callbacks: Any) -> Self:
            """Set callbacks for the estimator: objects with the methods of the protocol."""
            hooks = ("setup", "on_fit_task_begin", "on_fit_task_end", "teardown")
            for callback in callbacks:
                missing = [hook for hook in hooks if not hasattr(callback, hook)]
                if missing or isinstance(callback, type):
                    raise TypeError(
                        f"A callback must be an instance with the methods {hooks}; {callback!r} is not."
                    )
            self._skl_callbacks = list(callbacks)
            return self

        def _init_callback_context(self, max_subtasks: int | None = 0) -> _Context:
            self._callback_fit_ctx = _Context(getattr(self, "_skl_callbacks", []), "fit")
            for callback in self._callback_fit_ctx._callbacks:
                callback.setup(estimator=self, context=self._callback_fit_ctx)
            return self._callback_fit_ctx

    def with_callbacks(method: Callable[..., Any]) -> Callable[..., Any]:
        """Tear callbacks down after the method, however it ends."""

        @functools.wraps(method)
        def managed(estimator: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return method(estimator, *args, **kwargs)
            finally:
                context = estimator.__dict__.pop("_callback_fit_ctx", None)
                for callback in context._callbacks if context else []:
                    callback.teardown(estimator=estimator, context=context)

        return managed


def fitting(fit: Callable[..., Any]) -> Callable[..., Any]:
    """A fit with callbacks that, if it fails, leaves the learner as it was: none answers from parts of two fits."""
    managed = with_callbacks(fit)

    @functools.wraps(managed)
    def all_or_nothing(estimator: Any, *args: Any, **kwargs: Any) -> Any:
        # What is cached is made anew when it is asked for.
        before = {name: value for name, value in vars(estimator).items() if not name.startswith("_cached")}
        try:
            return managed(estimator, *args, **kwargs)
        except BaseException:
            vars(estimator).clear()
            vars(estimator).update(before)
            raise

    return all_or_nothing


def iteration_callback(estimator: Any, context: Any) -> Callable[[HistoryEntry], bool]:
    """What an optimiser calls after each iteration: a subtask of the fit begins and ends; True stops the search."""

    def call(entry: HistoryEntry) -> bool:
        task = context.subcontext(task_name="iteration")
        task.call_on_fit_task_begin(estimator=estimator)
        return bool(task.call_on_fit_task_end(estimator=estimator))

    return call


__all__ = ["CallbackSupportMixin", "iteration_callback", "with_callbacks"]
