"""Laforgue, Clémençon, d'Alché-Buc: Autoencoding any data through kernel autoencoders (2019)."""

from papers.laforgue import labelled, molecules, pictures

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (*pictures.EXPERIMENTS, *molecules.EXPERIMENTS, *labelled.EXPERIMENTS)
