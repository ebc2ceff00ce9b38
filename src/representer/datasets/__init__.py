"""Data: functions to sample from, strings and curves that are made, and loaders for public sets that lie in a folder.

Nothing is downloaded. A loader reads from the ``folder`` it is given, or from the one that the environment variable
``REPRESENTER_DATA`` names.
"""

from representer.datasets.files import MissingDataError, Source
from representer.datasets.functions import jump, kink, make_jump, make_kink, square_grid, straight_kink
from representer.datasets.generated import make_bumps, make_motif_strings
from representer.datasets.images import FACES, USPS, load_faces, load_usps
from representer.datasets.molecules import (
    BACE,
    ESOL,
    FREESOLV,
    METABOLITES,
    NCI60,
    load_bace,
    load_esol,
    load_freesolv,
    load_metabolites,
    load_nci60,
)
from representer.datasets.uci import SEGMENT, YACHT, load_segment, load_yacht

__all__ = [
    "BACE",
    "ESOL",
    "FACES",
    "FREESOLV",
    "METABOLITES",
    "NCI60",
    "SEGMENT",
    "USPS",
    "YACHT",
    "MissingDataError",
    "Source",
    "jump",
    "kink",
    "load_bace",
    "load_esol",
    "load_faces",
    "load_freesolv",
    "load_metabolites",
    "load_nci60",
    "load_segment",
    "load_usps",
    "load_yacht",
    "make_bumps",
    "make_jump",
    "make_kink",
    "make_motif_strings",
    "square_grid",
    "straight_kink",
]
