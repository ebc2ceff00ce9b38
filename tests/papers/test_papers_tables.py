"""Real tables: the kernel that peers are given on fingerprints."""

from __future__ import annotations

import pytest

from papers import tables
from representer import Morgan


def test_the_kernel_of_fingerprints() -> None:
    pytest.importorskip("rdkit")
    bits = Morgan().fit_transform(["CCO", "OCC", "c1ccccc1"]).astype(float)
    gram = tables.tanimoto(bits, bits)
    assert gram[0, 1] == 1.0
    both = (bits[0] * bits[2]).sum()
    assert gram[0, 2] == pytest.approx(both / (bits[0].sum() + bits[2].sum() - both))
