"""Data: functions to sample from, strings, curves, points and pictures that are made, and loaders for public sets.

Nothing is downloaded unless ``fetch`` is called. A loader reads from the ``folder`` it is given, or from the one that
the environment variable ``REPRESENTER_DATA`` names.
"""

from representer.datasets.downloads import DOWNLOADS, fetch
from representer.datasets.files import MissingDataError, Source
from representer.datasets.functions import jump, kink, make_jump, make_kink, square_grid, straight_kink
from representer.datasets.generated import make_bumps, make_strings
from representer.datasets.graphs import MUTAG, NCI1, load_mutag, load_nci1
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
from representer.datasets.points import make_circles3, make_synth1, make_synth2, make_synth3
from representer.datasets.shapes import make_shapes
from representer.datasets.structured import (
    BIBTEX,
    ISOMAP_FACES,
    OCR,
    SCENE,
    YEAST_MULTILABEL,
    load_bibtex,
    load_isomap_faces,
    load_ocr,
    load_scene,
    load_yeast_multilabel,
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
    "BIBTEX",
    "BUPA",
    "CLEVELAND",
    "DOWNLOADS",
    "ECOLI",
    "ESOL",
    "FACES",
    "FREESOLV",
    "IONOSPHERE",
    "ISOMAP_FACES",
    "METABOLITES",
    "MNIST",
    "MUTAG",
    "NCI1",
    "NCI60",
    "OCR",
    "PIMA",
    "ROBOT",
    "SCENE",
    "SEGMENT",
    "USPS",
    "WINE",
    "YACHT",
    "YEAST",
    "YEAST_MULTILABEL",
    "MissingDataError",
    "Source",
    "fetch",
    "jump",
    "kink",
    "load_bace",
    "load_banknote",
    "load_bibtex",
    "load_bupa",
    "load_cleveland",
    "load_ecoli",
    "load_esol",
    "load_faces",
    "load_freesolv",
    "load_ionosphere",
    "load_isomap_faces",
    "load_metabolites",
    "load_mnist",
    "load_mutag",
    "load_nci1",
    "load_nci60",
    "load_ocr",
    "load_pima",
    "load_robot",
    "load_scene",
    "load_segment",
    "load_usps",
    "load_wine",
    "load_yacht",
    "load_yeast",
    "load_yeast_multilabel",
    "make_bumps",
    "make_circles3",
    "make_jump",
    "make_kink",
    "make_shapes",
    "make_strings",
    "make_synth1",
    "make_synth2",
    "make_synth3",
    "sources",
    "square_grid",
    "straight_kink",
]


def sources() -> list[Source]:
    """The files of all public sets that loaders read."""
    return sorted((value for value in globals().values() if isinstance(value, Source)), key=lambda s: s.file)
