"""RDKit molecules in model files, as SMILES with the order of the atoms.

RDKit's own binary form is no choice: its reader does not end on some damaged ones.
"""

from __future__ import annotations

from typing import Any

from representer.persistence.container import ModelFileError


def molecule_state(value: Any) -> dict[str, Any] | None:
    """A molecule as SMILES and the places of its atoms there; None for anything else."""
    if type(value).__module__ != "rdkit.Chem.rdchem":
        return None
    from rdkit import Chem

    molecule = Chem.Mol(value)  # a copy, because writing SMILES leaves a note in the molecule
    text = Chem.MolToSmiles(molecule, canonical=False)
    order = list(molecule.GetPropsAsDict(True, True).get("_smilesAtomOutputOrder", ()))
    content = [text, order]
    again = molecule_record(None, content)
    if _structure(again) != _structure(value):
        raise ModelFileError(
            f"A molecule ({text}) is another one after it was written as SMILES and read again. Fit to molecules that "
            "Chem.MolFromSmiles has made, or to SMILES."
        )
    return {"molecule": content}


def molecule_record(_: Any, content: Any) -> Any:
    """The molecule of SMILES and an order of atoms."""
    try:
        from rdkit import Chem
    except ImportError as error:
        raise ModelFileError('The model holds molecules: pip install "representer[molecules]".') from error
    text, order = content
    settings: Any = Chem.SmilesParserParams()
    settings.removeHs = False
    molecule = Chem.MolFromSmiles(str(text), settings)
    if molecule is None or sorted(order) != list(range(molecule.GetNumAtoms())):
        raise ModelFileError(f"{str(text)[:80]!r} is no molecule.")
    places = sorted(range(len(order)), key=order.__getitem__)
    return Chem.RenumberAtoms(molecule, places)


def _structure(molecule: Any) -> tuple[Any, ...]:
    """What tells two molecules apart: atoms and bonds in their order, and the isomeric SMILES."""
    from rdkit import Chem

    asked = ("AtomicNum", "FormalCharge", "Isotope", "TotalNumHs", "IsAromatic", "NumRadicalElectrons")
    atoms = [tuple(getattr(atom, f"Get{name}")() for name in asked) for atom in molecule.GetAtoms()]
    bonds = {(*sorted((b.GetBeginAtomIdx(), b.GetEndAtomIdx())), str(b.GetBondType())) for b in molecule.GetBonds()}
    return atoms, bonds, Chem.MolToSmiles(molecule)
