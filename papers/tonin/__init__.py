"""Tonin, Tao, Patrinos, Suykens: Deep kernel principal component analysis (2023)."""

from papers.tonin import generation, levels, shapes, solvers, tables

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (
    *levels.EXPERIMENTS,
    *solvers.EXPERIMENTS,
    *tables.EXPERIMENTS,
    *shapes.EXPERIMENTS,
    *generation.EXPERIMENTS,
)
