"""Kadri, Ghavamzadeh, Preux: A generalized kernel approach to structured output learning (2013)."""

from papers.kadri import faces, labels, operators, table2

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (*table2.EXPERIMENTS, *faces.EXPERIMENTS, *operators.EXPERIMENTS, *labels.EXPERIMENTS)
