"""Learners: the only room that knows scikit-learn."""

from representer.estimators.fingerprints import MACCS, AtomPairs, Morgan, Paths, Torsions
from representer.estimators.operator_ridge import OperatorRidge

__all__ = ["MACCS", "AtomPairs", "Morgan", "OperatorRidge", "Paths", "Torsions"]
