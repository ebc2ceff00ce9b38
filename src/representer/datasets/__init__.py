"""Data: functions to sample from, strings and curves that are made, and loaders for public sets that lie in a folder.

Nothing is downloaded unless ``fetch`` is called. A loader reads from the ``folder`` it is given, or from the one that
the environment variable ``REPRESENTER_DATA`` names.
"""

from representer.datasets.downloads import DOWNLOADS, fetch
from representer.datasets.files import MissingDataError, Source
from representer.datasets.functions import jump, kink, make_jump, make_kink, square_grid, straight_kink
from representer.datasets.generated import make_bumps, make_motif_strings
from representer.datasets.images import FACES, MNIST, USPS, load_faces, load_mnist, load_usps
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
from representer.datasets.uci import (
    BANKNOTE,
    BUPA,
    CLEVELAND,
    ECOLI,
    IONOSPHERE,
    PIMA,
    ROBOT,
    SEGMENT,
    WINE,
    YACHT,
    YEAST,
    load_banknote,
    load_bupa,
    load_cleveland,
    load_ecoli,
    load_ionosphere,
    load_pima,
    load_robot,
    load_segment,
    load_wine,
    load_yacht,
    load_yeast,
)

__all__ = [
    "BACE",
    "BANKNOTE",
    "BUPA",
    "CLEVELAND",
    "DOWNLOADS",
    "ECOLI",
    "ESOL",
    "FACES",
    "FREESOLV",
    "IONOSPHERE",
    "METABOLITES",
    "MNIST",
    "NCI60",
    "PIMA",
    "ROBOT",
    "SEGMENT",
    "USPS",
    "WINE",
    "YACHT",
    "YEAST",
    "MissingDataError",
    "Source",
    "fetch",
    "jump",
    "kink",
    "load_bace",
    "load_banknote",
    "load_bupa",
    "load_cleveland",
    "load_ecoli",
    "load_esol",
    "load_faces",
    "load_freesolv",
    "load_ionosphere",
    "load_metabolites",
    "load_mnist",
    "load_nci60",
    "load_pima",
    "load_robot",
    "load_segment",
    "load_usps",
    "load_wine",
    "load_yacht",
    "load_yeast",
    "make_bumps",
    "make_jump",
    "make_kink",
    "make_motif_strings",
    "sources",
    "square_grid",
    "straight_kink",
]


def sources() -> list[Source]:
    """The files of all public sets that loaders read."""
    return sorted((value for value in globals().values() if isinstance(value, Source)), key=lambda s: s.file)
