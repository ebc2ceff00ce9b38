"""Questions to a fitted function: why it predicts what it does, how sure it is, and what it lost or kept."""

from representer.inspection.explanation import (
    Explanation,
    as_text,
    class_misfits,
    explain_with_neighbours,
    flat,
    kernel_of,
    left_out_misfits,
    points_of,
    relative_errors,
    representation_of,
)
from representer.inspection.intervals import (
    LEARNED,
    FoldFits,
    alone,
    check_coverage,
    class_probabilities,
    class_sets,
    fold_intervals,
    fold_sets,
    left_out_intervals,
    with_deviation,
)
from representer.inspection.levels import (
    ApproximationBounds,
    approximation_bounds,
    are_leading,
    defects,
    eta_for_explained_variance,
)
from representer.inspection.relevance import columns_to_ask, part_effects, sensitivities, total_effects
from representer.inspection.report import Report, confusion, effective_dimension, kernel_words, make_report
from representer.inspection.rounding import lost_digits

__all__ = [
    "LEARNED",
    "ApproximationBounds",
    "Explanation",
    "FoldFits",
    "Report",
    "alone",
    "approximation_bounds",
    "are_leading",
    "as_text",
    "check_coverage",
    "class_misfits",
    "class_probabilities",
    "class_sets",
    "columns_to_ask",
    "confusion",
    "defects",
    "effective_dimension",
    "eta_for_explained_variance",
    "explain_with_neighbours",
    "flat",
    "fold_intervals",
    "fold_sets",
    "kernel_of",
    "kernel_words",
    "left_out_intervals",
    "left_out_misfits",
    "lost_digits",
    "make_report",
    "part_effects",
    "points_of",
    "relative_errors",
    "representation_of",
    "sensitivities",
    "total_effects",
    "with_deviation",
]
