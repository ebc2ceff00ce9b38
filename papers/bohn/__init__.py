"""Bohn, Griebel, Rieger: A representer theorem for deep kernel learning (2019)."""

from papers.bohn.figures import EXPERIMENTS

__all__ = ["EXPERIMENTS"]
