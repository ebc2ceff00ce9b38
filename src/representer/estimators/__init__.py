"""Learners: the only room that knows scikit-learn."""

from representer.estimators.operator_ridge import OperatorRidge

__all__ = ["OperatorRidge"]
