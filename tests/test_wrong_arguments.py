"""Kernels, decoders, metrics and made data refuse arguments of the wrong kind by their names, with what they expect."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from representer import StructuredPredictor, metrics
from representer.approximation import Nystroem
from representer.datasets import kink, make_bumps, make_kink, make_strings, make_synth1, square_grid
from representer.kernels import (
    Centered,
    Delta,
    Gaussian,
    Linear,
    Molecule,
    Neural,
    Polynomial,
    Product,
    Pullback,
    Scaled,
    Sum,
    Tanimoto,
)
from representer.preimage import Custom, FixedPoint, Gradient
from representer.values import as_floats, as_generator

X = np.random.default_rng(0).normal(size=(12, 2))
NUMBERS = X[:, 0]


def decoded(decoder):
    return StructuredPredictor(Gaussian(1.0), Gaussian(1.0), alpha=0.1, decoder=decoder).fit(X, X).predict(X[:2])


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (lambda: Centered("rbf")(X), r"kernel of Centered must be a kernel object.*got 'rbf'.*as_kernel\('rbf'\)"),
        (lambda: Scaled(5)(X), "kernel of Scaled must be a kernel object.*got 5"),
        (lambda: Sum([Linear()], Linear())(X), "left of Sum must be a kernel object"),
        (lambda: Product(Linear(), None)(X), "right of Product must be a kernel object.*got None"),
        (lambda: Pullback(Linear(), "square")(X), "function of Pullback must be a function of data; got 'square'"),
        (lambda: Neural(5, Linear())(X), "module of Neural must be a torch.nn.Module; got 5"),
        (lambda: Polynomial(gamma=[None, 1])(X), "gamma of Polynomial"),
        (lambda: Molecule(substructures=["rings"])(["CCO"]), r"substructures must be one of.*got \['rings'\]"),
        (lambda: Molecule(counts=np.ones(2))(["CCO"]), "counts must be True or False"),
        (lambda: Tanimoto(packed=np.ones(2))(np.eye(2)), "packed of Tanimoto must be True or False"),
        (lambda: Delta()(5), "Delta takes a sequence of labels"),
        (lambda: Nystroem(3, sampling=np.ones(3)).fit(X), "sampling of Nystroem must be one of"),
        (lambda: decoded(Gradient(max_iter=2.5)), "max_iter must be an integer of at least 1; got 2.5"),
        (lambda: decoded(FixedPoint(tol="small")), "tol must be a number of at least 0; got 'small'"),
        (lambda: decoded(Custom("nearest")), "function of Custom must be a function.*got 'nearest'"),
        (lambda: metrics.nlpd(["a"] * 12, NUMBERS, 1.0), "y must be a number or an array of numbers"),
        (lambda: metrics.nlpd(NUMBERS, NUMBERS, [1.0, 2.0]), r"std must be a number, or have the shape \(12,\)"),
        (lambda: metrics.coverage(NUMBERS, "abc"), "intervals must be a number or an array of numbers; got 'abc'"),
        (lambda: metrics.brier([0, 1], "abc"), "probabilities must be a number or an array of numbers"),
        (lambda: metrics.brier([0, "a", None], np.eye(3)), "y must hold numbers or texts"),
        (lambda: metrics.brier([0, 1], np.eye(2), classes=5), "classes must have one label"),
        (lambda: metrics.top_k(NUMBERS, 5), "ranked a list with the list of candidates"),
        (lambda: metrics.mig({"a": 1}, X), "codes must be a number or an array of numbers"),
        (lambda: metrics.hsic_test(X, X, random_state="seed"), "random_state must be an integer.*got 'seed'"),
        (lambda: metrics.mmd_test(X, X, random_state=-1), "random_state must be an integer of at least 0"),
        (lambda: metrics.conditional_mmd(5, 5, X), "one must be a fitted ConditionalMeanEmbedding; got 5"),
        (lambda: square_grid("5"), "at least 2 points on a side; got size='5'"),
        (lambda: kink("abc"), "X must be a number or an array of numbers; got 'abc'"),
        (lambda: make_kink("many"), "n_samples must be positive.*got 'many'"),
        (lambda: make_synth1(5, random_state="seed"), "random_state must be an integer"),
        (lambda: make_strings(2.5), "n_samples must be positive.*got 2.5"),
        (lambda: make_strings(2, length=[9]), r"length must be at least.*got \[9\]"),
        (lambda: make_bumps(5, noise=NUMBERS), "noise at least 0"),
    ],
)
def test_wrong_arguments_are_refused_by_name(question, words):
    with pytest.raises((ValueError, TypeError), match=words):
        question()


def test_numbers_are_read_and_other_things_refused():
    assert as_floats(torch.ones(2, requires_grad=True), "y").tolist() == [1.0, 1.0]
    for strange in (["a"], np.array(["2020-01-01"], dtype="datetime64[D]"), {"a": 1}, len, [[1], [1, 2]], 10**400):
        with pytest.raises(ValueError, match=r"^y must be a number or an array of numbers; got .*Convert it first"):
            as_floats(strange, "y")
    assert as_generator(np.random.default_rng(0)).random() == as_generator(0).random()


def test_what_prints_a_place_in_memory_is_named_by_its_type():
    with pytest.raises(ValueError, match="got <object>"):
        StructuredPredictor(Gaussian(1.0), alpha=0.1).fit(X, object())
