"""Fitted learners in files: saved, described, loaded, resumed."""

from representer.persistence.checkpoints import Checkpoint
from representer.persistence.container import ModelFileError
from representer.persistence.files import FORMAT, describe, read_model, write_model
from representer.persistence.records import FitRecord, fingerprint, schema

__all__ = [
    "FORMAT",
    "Checkpoint",
    "FitRecord",
    "ModelFileError",
    "describe",
    "fingerprint",
    "read_model",
    "schema",
    "write_model",
]
