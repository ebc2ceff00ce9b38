"""Where the samples of a fit are, and how they are read: in memory, or in Dask collections."""

from representer.samples.data import (
    Array,
    Data,
    SparseRows,
    as_items,
    as_list,
    as_scipy,
    as_vectors,
    count,
    first_positions,
    is_dask,
    is_single,
    plain,
    same_features,
    take,
)
from representer.samples.in_memory import Block, HeldSamples, InMemory, Samples, Step
from representer.samples.on_dask import OnDask, as_rows, map_rows, refuse_frames, require_dask
from representer.samples.replicates import equal_rows, groups_with_replicates, joined_groups, least_noise
from representer.samples.rows import evenly_spaced, sample_groups, sample_rows, sampling_keys

__all__ = [
    "Array",
    "Block",
    "Data",
    "HeldSamples",
    "InMemory",
    "OnDask",
    "Samples",
    "SparseRows",
    "Step",
    "as_items",
    "as_list",
    "as_rows",
    "as_scipy",
    "as_vectors",
    "count",
    "equal_rows",
    "evenly_spaced",
    "first_positions",
    "groups_with_replicates",
    "is_dask",
    "is_single",
    "joined_groups",
    "least_noise",
    "map_rows",
    "plain",
    "refuse_frames",
    "require_dask",
    "same_features",
    "sample_groups",
    "sample_rows",
    "sampling_keys",
    "take",
]
