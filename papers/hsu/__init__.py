"""Hsu, Nock, Ramos: Hyperparameter learning for conditional kernel mean embeddings (2018)."""

from papers.hsu import mnist, objectives, table1, toys

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (*table1.EXPERIMENTS, *toys.EXPERIMENTS, *mnist.EXPERIMENTS, *objectives.EXPERIMENTS)
