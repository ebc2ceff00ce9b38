"""What a kernel autoencoder does behind its public methods."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import ShuffleSplit
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from representer import preimage
from representer.approximation import Nystroem
from representer.data import SparseRows, count, plain
from representer.problems import losses as _losses
from representer.problems.autoencoder import AutoencoderFit, narrowest, ordered
from representer.problems.bound import BoundData
from representer.estimators._callbacks import iteration_callback
from representer.problems.composition import Composition
from representer.estimators._deep import DeepKernelMachine, as_layer
from representer.problems.deep import Settings
from representer.problems.outer import autoencoder_part, fit_outer
from representer.problems.fixed_gram import precompute
from representer.estimators._supervision import label_targets, rows_of
from representer.problems.target_space import FeatureSpace, KernelSpace, TargetSpace, kernel_of_target
from representer.estimators.validation import (
    DTYPES,
    as_operator_kernel,
    check_inputs,
    check_options,
    seed_of,
    warn_unconverged,
)
from representer.functions import Layer
from representer.kernels import Kernel
from representer.linalg import repair_gram
from representer.operators import Decomposable, OperatorKernel
from representer.operators.adapted import original, takes_sparse
from representer.parameters import is_count, is_real

# Landmarks of a fit in batches that has not been given any.
BATCH_LANDMARKS = 500


class Autoencoder(DeepKernelMachine):
    """f_L ∘ … ∘ f_1 whose targets are the data."""

    layers = ()  # what the base class calls so is made from n_components
    loss = "squared"
    _kernel_arguments = ("kernel", "decoder_kernel")

    n_components: Any
    decoder_kernel: Any
    target: Any
    encoder_alpha: Any
    supervision: float
    preimage: str
    batch_size: int | None

    # -- arguments ----------------------------------------------------------------------------------------------------
    def _check_autoencoder(self) -> None:
        self._check_arguments(("squared",))
        check_options(self, {"preimage": ("auto", "nearest", "weighted", "direct")})
        if not isinstance(self.target, Kernel):
            words = ("auto", "features", "kernel")
            if not isinstance(self.target, str) or self.target not in words:
                raise ValueError(
                    f"target must be a kernel or one of {', '.join(map(repr, words))}; got {self.target!r}."
                )
        if not (is_real(self.supervision) and 0 <= self.supervision < float("inf")):
            raise ValueError(f"supervision must be a finite number, at least 0; got {self.supervision!r}.")
        if self.batch_size is not None and not is_count(self.batch_size):
            raise ValueError(f"batch_size must be None or a positive integer; got {self.batch_size!r}.")
        auto = isinstance(self.encoder_alpha, str) and self.encoder_alpha == "auto"
        if not (auto or (is_real(self.encoder_alpha) and 0 < self.encoder_alpha < float("inf"))):
            raise ValueError(
                f"encoder_alpha must be positive and finite, or 'auto'; got {self.encoder_alpha!r}."
            )

    def _layers(self, targets: Tensor) -> list[Layer]:
        """The inner layers that n_components describes."""
        wanted = given = self.n_components
        if is_real(given) and not is_count(given):
            given = components_for(targets, float(given)) if 0 < given < 1 else None
        if not (is_count(given) or isinstance(given, list | tuple)):
            raise ValueError(
                "n_components must be a positive integer, a share of the variance between 0 and 1, or a list of inner "
                f"layers; got {wanted!r}."
            )
        entries = list(given) if isinstance(given, list | tuple) else [given]
        if not entries:
            raise ValueError("n_components is an empty list: an autoencoder needs at least one inner layer.")
        layers = []
        for i, entry in enumerate(entries):
            kernel = self.kernel if i == 0 else self.decoder_kernel
            short = is_count(entry)
            layer = Layer(kernel, int(entry), alpha=self.encoder_alpha) if short else as_layer(entry)
            if isinstance(layer.alpha, str):
                layer = layer.replaced(alpha=self.encoder_alpha)
            layer = layer.__sklearn_clone__()
            layer.check()
            layer.kernel, layer.operator = as_operator_kernel(layer.kernel, layer.operator), None
            layers.append(layer)
        return layers

    def _settings(self, context: Any) -> Settings:
        """How to fit; a share of the samples to hold out is one split."""
        seed = seed_of(self.random_state)
        single = is_real(self.cv) and 0 < self.cv < 1
        cv = ShuffleSplit(1, test_size=self.cv, random_state=seed) if single else self.cv
        callback = iteration_callback(self, context)
        limits = (self.n_restarts, self.max_iter, self.tol)
        return Settings(self.criterion, cv, self._approximation(), *limits, seed, self.verbose, callback)

    def _approximation(self) -> Nystroem | None:
        if self.batch_size is None or self.approximation is not None:
            return self.approximation
        return Nystroem(BATCH_LANDMARKS)

    # -- fitting ------------------------------------------------------------------------------------------------------
    def _fit(self, X: Any, y: Any, context: Any) -> None:
        self._check_autoencoder()
        self._dtype = DTYPES[self.dtype]
        first = self._first_kernel()
        part = autoencoder_part(self, first, X)
        X, n = part.X, len(part.X)
        if n < 2:
            raise ValueError(f"Found {n} sample (n_samples = {n}): an autoencoder needs at least 2.")
        self.X_fit_, self._sparse = X, isinstance(X, SparseRows)
        data = self._prepared(first, X)
        if first.domain == "gram":
            data = repair_gram(data)
        like = self._tensor(np.zeros(1))
        once = self._approximation() is None
        encoder, encoder_input, restore = precompute(Composition([], first, 1.0), data, like, once=once)
        gram = encoder_input if restore.kernel is not None else None
        space = self._make_space(original(restore.kernel or first), data, gram)
        coordinates = space.coordinates(data, gram)
        layers = self._layers(coordinates)
        layers[0].kernel = encoder.kernel
        code = narrowest(layers)
        if layers[code].size >= n:
            raise ValueError(
                f"n_components={layers[code].size} must be smaller than the number of samples, {n}: such codes could "
                "simply number the samples."
            )
        composition = Composition(layers, as_operator_kernel(self.decoder_kernel, None), self.alpha)
        self._check_spaces(composition, space)
        targets = coordinates
        if self.supervision > 0:
            labels = label_targets(rows_of(y, part.rows), coordinates, self.supervision, n)
            targets = torch.cat([coordinates, labels], 1)
        loss, settings = _losses.squared(self.fit_intercept), self._settings(context)
        fit = AutoencoderFit(
            composition, encoder_input, targets, loss, None, settings, batch_size=self.batch_size
        )
        with restore.advice():
            solution = fit.run()
        if fit.collapsed:
            warn_unconverged(
                "The codes have collapsed to a constant, also from other starts: encoder_alpha outweighs what codes "
                "could explain. Lower encoder_alpha or alpha, or standardise the data."
            )
        chain = solution.problem.chain
        assert chain is not None
        after = [layer.operator_kernel for layer in solution.problem.composition.layers] + [
            solution.problem.composition.kernel
        ]
        solution = replace(solution, point=ordered(chain, solution.point, code, after[code + 1]))
        self._keep(solution, restore)
        if part.source is not None and isinstance(space, FeatureSpace) and not self.supervision > 0:
            fit_outer(self, part, solution)
        self._outer_sums = None
        self._keep_autoencoder(space, coordinates, data, code)

    def _first_kernel(self) -> OperatorKernel:
        """The kernel that sees the data."""
        entries = self.n_components if isinstance(self.n_components, list | tuple) else ()
        if not entries or is_count(entries[0]):
            return as_operator_kernel(self.kernel, None)
        layer = as_layer(entries[0])
        layer.check()
        kernel = as_operator_kernel(layer.kernel, layer.operator)
        if self.kernel != "rbf" and as_operator_kernel(self.kernel, layer.operator) != kernel:
            raise ValueError(
                f"Both kernel={self.kernel!r} and the first entry of n_components, {entries[0]!r}, name the kernel of "
                "the data. Leave kernel at its default, or give a size in the list."
            )
        return kernel

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        try:
            first = self._first_kernel()
        except (ValueError, TypeError):  # fit will say what is wrong
            return tags
        tags.input_tags.pairwise = first.domain == "gram"
        tags.input_tags.sparse = takes_sparse(first)
        return tags

    def _make_space(self, kernel: OperatorKernel, data: Any, gram: Tensor | None) -> TargetSpace:
        """The target space; ``gram`` is the Gram matrix of objects, which is computed once for encoder and targets."""
        scalar = kernel.kernel if isinstance(kernel, Decomposable) else None
        target = kernel_of_target(self.target, scalar, sparse=self._sparse)
        if target is None:
            return FeatureSpace()
        if target.domain != kernel.domain:
            raise ValueError(
                f"The target kernel {target!r} takes {target.domain!r}, but the data are {kernel.domain!r} for "
                f"{kernel!r}: both see the same data."
            )
        target = target.resolve(data)
        approximation = self._approximation()
        return KernelSpace.of(
            target,
            data,
            self._tensor(np.zeros(1)),
            gram=gram if target == scalar else None,
            max_rank=None if approximation is None else approximation.at_most(count(data)),
        )

    def _check_spaces(self, composition: Composition, space: TargetSpace) -> None:
        later = [(f"Layer {i} of n_components", l.domain) for i, l in enumerate(composition.layers)][1:]
        for who, domain in [*later, ("decoder_kernel", composition.kernel.domain)]:
            if domain != "vectors":
                raise ValueError(
                    f"{who} takes data of the kind {domain!r}, but it gets codes, which are vectors. Only the first "
                    "kernel sees the data themselves."
                )
        scalar = isinstance(composition.kernel, Decomposable) and composition.kernel.operator is None
        if not scalar and (isinstance(space, KernelSpace) or self.supervision > 0):
            raise ValueError(
                f"decoder_kernel={composition.kernel!r} has an output operator, which is for vectors. For targets in "
                "an RKHS, or with supervision, give a scalar kernel."
            )

    def _keep_autoencoder(self, space: TargetSpace, coordinates: Tensor, data: Any, code: int) -> None:
        r = coordinates.shape[1]
        decoder = self._functions[-1]
        self._functions[-1] = replace(decoder, coefficients=decoder.coefficients[:, :r].contiguous())
        if self._feature_coef is not None:
            self._feature_coef = self._feature_coef[:, :r]
        self.dual_coef_, self.intercept_ = self.dual_coef_[:, :r], self.intercept_[:r]
        self.layer_norms_[-1] = max(self._functions[-1].squared_norm().item(), 0.0) ** 0.5
        self.decoder_kernel_ = self.kernel_
        self.kernel_ = self.layers_[0].kernel
        self.target_kernel_ = space.kernel if isinstance(space, KernelSpace) else None
        self._space, self.code_layer_ = space, code
        self.n_components_ = self._n_features_out = self.layers_[code].size
        self._centre = coordinates.mean(0)
        norms = space.squared_norms(data)
        self._mean_squared_norm = norms.mean().item()
        spread = (norms.max() - norms.min()).item()
        constant = spread <= len(norms) * torch.finfo(norms.dtype).eps * abs(self._mean_squared_norm)
        self._constant_norm = self._mean_squared_norm if constant else None
        self._train_variance = space.squared_distances(data, self._centre[None], norms).mean().item()
        self.explained_variance_ratio_ = self._explained(data, norms)
        self._bound_data = BoundData.of(self._functions, self._inner_images(data), norms, r)

    # -- the fitted functions -----------------------------------------------------------------------------------------
    def _inner_images(self, X: Any) -> list[Any]:
        images = [X]
        for function in self._placed()[:-1]:
            images.append(function(images[-1]))
        return images

    def _codes(self, X: Any) -> Tensor:
        """The codes of prepared data."""
        for function in self._placed()[: self.code_layer_ + 1]:
            X = function(X)
        return X

    def _decode(self, codes: Tensor) -> Tensor:
        """Coordinates of reconstructions in the target space."""
        for function in self._placed()[self.code_layer_ + 1 : -1]:
            codes = function(codes)
        return self._decide(codes)

    def _check_codes(self, Z: Any) -> Tensor:
        check_is_fitted(self)
        codes = check_array(plain(Z), dtype=np.float64, input_name="Z")
        if codes.shape[1] != self.n_components_:
            raise ValueError(
                f"Z has {codes.shape[1]} columns, but codes have {self.n_components_} components."
            )
        return self._tensor(codes)

    def _distortion(self, X: Any, norms: Tensor) -> Tensor:
        """‖φ(x) − f(x)‖², up to rounding, which may make it negative."""
        return self._space.squared_distances(X, self._decode(self._codes(X)), norms)

    def _explained(self, X: Any, norms: Tensor, variance: float | None = None) -> float:
        """1 − distortion / mean squared distance from the training mean, or a given variance."""
        distortion = self._distortion(X, norms).mean().item()
        if variance is None:
            variance = self._space.squared_distances(X, self._centre[None], norms).mean().item()
        if variance <= torch.finfo(norms.dtype).eps * norms.abs().mean().item():
            return (
                1.0 if distortion <= torch.finfo(norms.dtype).eps ** 0.5 * norms.abs().mean().item() else 0.0
            )
        return 1.0 - distortion / variance

    def _squared_norms(self, X: Any, diagonal: Any, *, strict: bool = True) -> Tensor:
        """k(x, x), or ‖x‖²; of Gram rows as far as it is known, or with ``strict=False`` that of the average sample."""
        domain = self._functions[0].kernel.domain
        if diagonal is not None:
            if domain != "gram":
                raise ValueError(
                    "diagonal= is for kernel='precomputed'; this kernel computes k(x, x) itself."
                )
            values = check_array(
                np.atleast_1d(plain(diagonal)), ensure_2d=False, dtype=np.float64, input_name="diagonal"
            )
            if values.shape != (len(X),):
                raise ValueError(
                    f"diagonal must have shape ({len(X)},), one k(x, x) a sample; got {values.shape}."
                )
            if (values < 0).any():
                raise ValueError("diagonal holds k(x, x), which cannot be negative.")
            return self._tensor(values)
        if domain != "gram":
            return self._space.squared_norms(X)
        if X.shape[0] == X.shape[1] and np.array_equal(plain(X), self.X_fit_):
            return X.diagonal()
        known = self._constant_norm if strict else self._mean_squared_norm
        if known is None:
            raise ValueError(
                "With kernel='precomputed', k(x, x) of new samples is not in k(X, X_train), and the training samples "
                "do not all have the same. Pass diagonal=, or a kernel object in the place of 'precomputed'."
            )
        return X.new_full((len(X),), known)

    # -- pre-images ---------------------------------------------------------------------------------------------------
    def _preimage(self, values: Tensor, candidates: Any, diagonal: Any) -> Any:
        """Objects for elements of the RKHS."""
        space = self._space
        assert isinstance(space, KernelSpace)
        domain = space.kernel.domain
        how = self.preimage
        if how == "auto":
            how = "direct" if space.is_linear and candidates is None else "nearest"
        if how == "direct":
            if not space.is_linear or candidates is not None:
                raise ValueError(
                    f"preimage='direct' is for linear kernels and without candidates; {space.kernel!r} has "
                    "elements that are the image of nothing. Use preimage='nearest' or, for vectors, 'weighted'."
                )
            return plain(space.combine(values))
        if how == "weighted" and domain != "vectors":
            raise ValueError(
                f"preimage='weighted' is a mean of vectors, but the data are {domain!r}: they have no mean. Use "
                "preimage='nearest', the closest of the training data or of candidates=."
            )
        if candidates is None:
            objects = self.X_fit_
        else:
            objects = check_inputs(self, candidates, domain, reset=False)
        prepared = self._prepared(space.kernel, objects)
        norms = self._squared_norms(prepared, diagonal)
        distance = preimage.distances(values, space.coordinates(prepared), norms)
        if how == "weighted":
            return plain(preimage.weighted(distance) @ prepared.to(values))
        chosen = preimage.nearest(distance)
        if domain == "gram":
            return plain(chosen)
        return (
            objects[plain(chosen)] if isinstance(objects, np.ndarray) else [objects[int(i)] for i in chosen]
        )


def components_for(coordinates: Tensor, share: float) -> int:
    """The least number of principal components that keep a share of the variance."""
    variances = torch.linalg.svdvals(coordinates - coordinates.mean(0)).square()
    kept = variances.cumsum(0) / variances.sum()
    return int((kept < share * (1.0 - torch.finfo(kept.dtype).eps * len(kept))).sum().item()) + 1
