"""Where the samples of a fit are, and how they are read: in memory, or in Dask collections."""

from representer.samples.held import HeldSamples
from representer.samples.in_memory import Block, InMemory, Samples, Step
from representer.samples.on_dask import OnDask

__all__ = ["Block", "HeldSamples", "InMemory", "OnDask", "Samples", "Step"]
