"""Fitted learners in files: saved, described, loaded, resumed."""

from representer.persistence.card import model_card
from representer.persistence.checkpoints import Checkpoint
from representer.persistence.container import ModelFileError
from representer.persistence.files import FORMAT, describe, read_model, write_model
from representer.persistence.light import Compression, WithoutSystem, lightened
from representer.persistence.records import FitRecord, fingerprint, schema

__all__ = [
    "FORMAT",
    "Checkpoint",
    "Compression",
    "FitRecord",
    "ModelFileError",
    "WithoutSystem",
    "describe",
    "fingerprint",
    "lightened",
    "model_card",
    "read_model",
    "schema",
    "write_model",
]
