"""Hyperparameters and features that are learned: networks, maps, raw vectors that stray anywhere."""

from __future__ import annotations

import copy
import pickle
import threading
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from torch import Tensor, nn

import naive
from representer.kernels import (
    Constant,
    Delta,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Neural,
    Polynomial,
    Pullback,
    RationalQuadratic,
    TensorMatern,
    has_statistics,
    in_training,
    with_statistics,
)
from representer.testing import check_kernel

RNG = np.random.default_rng(0)
X = RNG.standard_normal((6, 3))
Y = RNG.standard_normal((4, 3))
IMAGES = RNG.standard_normal((5, 1, 6, 7))
MORE_IMAGES = RNG.standard_normal((3, 1, 6, 7))


def network(*, dtype: torch.dtype = torch.float64) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)).to(dtype)


def convolution() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = [nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8, 3)]
        return nn.Sequential(*layers).double()


# -- neural -----------------------------------------------------------------------------------------------------------
def test_neural_is_the_kernel_of_the_features() -> None:
    module = network()
    with torch.no_grad():
        features, others = module(torch.from_numpy(X)), module(torch.from_numpy(Y))
    kernel = Neural(module, Gaussian(1.3))
    torch.testing.assert_close(kernel(X), Gaussian(1.3)(features))
    torch.testing.assert_close(kernel(X, Y), Gaussian(1.3)(features, others))
    torch.testing.assert_close(Neural(module, Linear()).diag(X), (features**2).sum(1))
    assert Neural(module, Gaussian()).resolve(X).kernel == Gaussian().resolve(features)


def test_neural_gradients_equal_those_of_the_module() -> None:
    module = network()
    expected = Gaussian(1.3)(module(torch.from_numpy(X)))
    weights = torch.from_numpy(RNG.standard_normal((6, 6)))
    (weights * expected).sum().backward()
    kernel = Neural(network(), Gaussian(1.3))
    leaves = {f"module__{name}": w.detach().clone().requires_grad_() for name, w in kernel.module.named_parameters()}
    (weights * kernel.replace(leaves)(X)).sum().backward()
    for name, weight in module.named_parameters():
        torch.testing.assert_close(leaves[f"module__{name}"].grad, weight.grad)
    assert all(weight.grad is None for weight in kernel.module.parameters())


def test_neural_weights_are_packed_with_the_rest() -> None:
    kernel = ("auto" * Neural(network(), Gaussian("auto"))).resolve(X)
    names = ("auto" * Neural(network(), Gaussian("auto"))).free()
    assert names[0] == "scale"
    assert names[-1] == "kernel__kernel__lengthscale"
    pack, raw = kernel.packing(names)
    assert len(raw) == 1 + (3 * 5 + 5 + 5 * 2 + 2) + 1
    torch.testing.assert_close(kernel.replace(pack.unpack(raw))(X), kernel(X))


def test_numbers_writes_the_weights_into_a_copy() -> None:
    module = network()
    before = copy.deepcopy(module.state_dict())
    kernel = Neural(module, Gaussian(1.3))
    pack, raw = kernel.packing(kernel.free())
    learned = kernel.replace(pack.unpack((raw + 0.1).requires_grad_()))
    fitted = learned.numbers()
    torch.testing.assert_close(fitted(X), learned(X).detach())
    assert not fitted(X).requires_grad
    assert fitted != kernel
    assert fitted.module is not module
    for name, weight in module.state_dict().items():
        assert torch.equal(weight, before[name]), "the given module was changed"
    again = pickle.loads(pickle.dumps(fitted))
    assert again == fitted
    torch.testing.assert_close(again(X), fitted(X))


def test_exchanged_weights_are_part_of_the_value() -> None:
    kernel = Neural(network(), Gaussian(1.3))
    pack, raw = kernel.packing(kernel.free())
    same, other = (kernel.replace(pack.unpack((raw + shift).requires_grad_())) for shift in (0.0, 0.1))
    assert same == kernel
    assert other != kernel
    copied = clone(other)
    assert copied == other
    assert not copied(X).requires_grad
    torch.testing.assert_close(copied(X), other(X).detach())
    assert kernel != Linear()
    assert Neural(nn.Linear(3, 2), Linear()) != Neural(nn.Linear(3, 4), Linear())
    assert Neural(nn.Tanh(), Linear()) != Neural(nn.ReLU(), Linear())


def test_frozen_weights_are_not_learned() -> None:
    module = network()
    module[0].requires_grad_(False)
    kernel = Neural(module, Gaussian("auto"))
    assert kernel.free() == ["module__2.weight", "module__2.bias", "kernel__lengthscale"]
    assert "module__0.weight" in kernel.constraints()


def test_neural_is_deterministic_and_leaves_the_module_as_it_was() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.ReLU(inplace=True)).double()
    module[2].eval()
    before = copy.deepcopy(module.state_dict())
    modes = [part.training for part in module.modules()]
    kernel = Neural(module, Gaussian(1.0))
    torch.testing.assert_close(kernel(X), kernel(X))
    torch.testing.assert_close(kernel(X)[:2, :2], kernel(X[:2]))
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_a_module_that_works_in_place_leaves_the_data_alone() -> None:
    data = X.copy()
    kernel = Neural(nn.ReLU(inplace=True), Linear())
    np.testing.assert_allclose(kernel(data), np.maximum(X, 0) @ np.maximum(X, 0).T)
    np.testing.assert_array_equal(data, X)
    assert kernel.free() == []
    leaf = torch.from_numpy(X).requires_grad_()
    assert torch.autograd.grad(kernel(leaf).sum(), leaf)[0].shape == leaf.shape


def test_precisions_mix() -> None:
    kernel = Neural(network(dtype=torch.float32), Gaussian(1.3))
    assert kernel(X).dtype == torch.float64
    torch.testing.assert_close(kernel(X), Neural(network(), Gaussian(1.3))(X), rtol=1e-5, atol=1e-5)
    assert kernel(torch.from_numpy(X).float()).dtype == torch.float32
    pack, raw = kernel.packing(["module__2.bias", "kernel__lengthscale"])
    assert raw.dtype == torch.float64
    assert kernel.replace(pack.unpack(raw))(X).dtype == torch.float64
    assert kernel.replace(pack.unpack(raw)).numbers().module[2].bias.dtype == torch.float32
    normed = Neural(nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)), Linear())
    pack, raw = normed.packing(normed.free())
    assert normed.replace(pack.unpack(raw.double()))(X).shape == (6, 6)


@pytest.mark.parametrize("samples", ["shared", "one batch a member"])
def test_a_batch_of_networks_equals_a_loop(samples: str) -> None:
    kernel = Neural(network(), Gaussian(1.3))
    pack, raw = kernel.packing(kernel.free())
    members = raw + 0.1 * torch.from_numpy(RNG.standard_normal((3, len(raw))))
    data = torch.from_numpy(X) if samples == "shared" else torch.from_numpy(RNG.standard_normal((3, 6, 3)))
    each = data.expand(3, 6, 3)
    expected = torch.stack([kernel.replace(pack.unpack(m))._gram(Z, None) for m, Z in zip(members, each, strict=True)])
    torch.testing.assert_close(kernel.replace(pack.unpack(members))._gram(data, None), expected)
    one = kernel.replace(pack.unpack(members[:1]))._gram(torch.from_numpy(X), None)
    assert one.shape == (1, 6, 6)


def test_unknown_weights_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no weights \['3.weight'\]; it has: 0.weight"):
        Neural(network(), Linear()).replace({"module__3.weight": torch.zeros(1)})
    with pytest.raises(ValueError, match="no hyperparameter"):
        Neural(network(), Linear()).replace({"kernel__lengthscale": 1.0})


# -- images and sequences ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize("domain", ["vectors", "objects"])
def test_images(domain: Any) -> None:
    module = convolution()
    with torch.no_grad():
        features, others = module(torch.from_numpy(IMAGES)), module(torch.from_numpy(MORE_IMAGES))
    kernel = Neural(module, Gaussian("auto"), domain)
    resolved = kernel.resolve(IMAGES)
    assert resolved.kernel == Gaussian("auto").resolve(features)
    torch.testing.assert_close(kernel(IMAGES), Gaussian()(features))
    torch.testing.assert_close(resolved(IMAGES, MORE_IMAGES), resolved.kernel(features, others))
    torch.testing.assert_close(resolved(torch.from_numpy(IMAGES), list(MORE_IMAGES)), resolved.kernel(features, others))
    assert resolved.diag(IMAGES).shape == (5,)
    affine = 2.0 * resolved + 1.0
    torch.testing.assert_close(affine(IMAGES), 2.0 * resolved(IMAGES) + 1.0)
    torch.testing.assert_close((Constant(1.0) + resolved)(IMAGES), resolved(IMAGES) + 1.0)
    torch.testing.assert_close(affine.diag(IMAGES), torch.full((5,), 3.0, dtype=torch.float64))
    torch.testing.assert_close(
        resolved.centered().resolve(IMAGES)(MORE_IMAGES, IMAGES),
        resolved.kernel.centered(features)(others, features),
    )


def test_the_contract_on_images() -> None:
    check_kernel("auto" * Neural(convolution(), Gaussian("auto"), "objects") + 1.0, IMAGES, MORE_IMAGES)


def test_prepared_images_are_counted_and_sliced_as_samples() -> None:
    kernel = Neural(convolution(), Gaussian(1.0))
    prepared = kernel.prepare(IMAGES)
    assert len(prepared) == 5
    torch.testing.assert_close(kernel._gram(prepared[1:3], prepared), kernel(IMAGES)[1:3])
    assert kernel.prepare(prepared) is prepared
    rows = [torch.from_numpy(row) for row in X]
    torch.testing.assert_close(Neural(network(), Linear())(rows), Neural(network(), Linear())(X))
    prepared[2] = prepared[2] * float("nan")
    with pytest.raises(ValueError, match="NaN or infinity"):
        kernel(prepared)


class LastState(nn.Module):
    """The last output of a recurrent network, for sequences (n, time, features)."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRU(2, 3, batch_first=True)

    def forward(self, sequences: Tensor) -> Tensor:
        return self.cell(sequences)[0][:, -1]


def test_sequences() -> None:
    sequences = RNG.standard_normal((5, 4, 2))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = LastState().double()
    kernel = Neural(module, Gaussian(1.0), "objects")
    with torch.no_grad():
        torch.testing.assert_close(kernel(sequences), Gaussian(1.0)(module(torch.from_numpy(sequences))))
    check_kernel(kernel + 0.5, sequences)


@pytest.mark.parametrize(
    ("module", "data", "message"),
    [
        (
            nn.Conv2d(1, 2, 3),
            IMAGES,
            r"to features of shape \(5, n_features\); it gave shape \(5, 2, 4, 5\).*Flatten",
        ),
        (nn.Conv2d(1, 1, 3, padding=1), IMAGES, r"it gave shape \(5, 1, 6, 7\)"),
        (nn.GRU(3, 2), X, "it gave <class 'tuple'>"),
        (nn.Flatten(0), X, r"it gave shape \(18,\)"),
    ],
)
def test_features_of_the_wrong_shape_are_refused(module: nn.Module, data: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Neural(module.double(), Linear())(data)


def test_unknown_domains_are_refused() -> None:
    with pytest.raises(ValueError, match=r"domain of Neural must be one of .*'objects'.*got 'images'"):
        Neural(convolution(), Linear(), "images")(IMAGES)  # type: ignore[arg-type]


# -- pullback ---------------------------------------------------------------------------------------------------------
def test_pullback_is_the_kernel_of_the_images() -> None:
    def f(A: Tensor) -> Tensor:
        return torch.stack([A[..., 0] * A[..., 1], A[..., 2].sin()], -1)

    image, other = f(torch.from_numpy(X)), f(torch.from_numpy(Y))
    kernel = Pullback("auto" * Gaussian("ard"), f)
    resolved = kernel.resolve(X)
    assert resolved.kernel == ("auto" * Gaussian("ard")).resolve(image)
    torch.testing.assert_close(kernel(X), resolved.kernel(image))
    torch.testing.assert_close(resolved(X, Y), resolved.kernel(image, other))
    assert kernel.free() == ["kernel__scale", "kernel__kernel__lengthscale"]
    check_kernel(kernel, X, Y)


def test_gradients_pass_through_the_function() -> None:
    module = network()
    weights = torch.from_numpy(RNG.standard_normal((6, 6)))
    (weights * Pullback(Gaussian(1.3), module)(X)).sum().backward()
    expected = network()
    (weights * Gaussian(1.3)(expected(torch.from_numpy(X)))).sum().backward()
    for mine, theirs in zip(module.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


def test_pullback_of_objects() -> None:
    words = ["kernel", "gram", "anchor"]
    lengths = Pullback(Gaussian(2.0), lambda items: [[float(len(w)), float(w.count("a"))] for w in items], "objects")
    np.testing.assert_allclose(lengths(words), naive.gram(naive.gaussian(2.0), [(6, 0), (4, 1), (6, 1)]))
    first = Pullback(Delta(), lambda items: [w[0] for w in items], "objects")
    assert first(words, ["graph"]).tolist() == [[0.0], [1.0], [0.0]]
    check_kernel(lengths + 1.0, words)


def test_an_image_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(ValueError, match="Expected a 2D array"):
        Pullback(Linear(), lambda A: A[:, 0])(X)


def test_where_an_optimiser_strays_the_image_may_be_nan() -> None:
    assert bool(torch.isnan(Pullback(Linear(), lambda A: A * float("nan"))(X)).all())
    with pytest.raises(ValueError, match="NaN or infinity"):
        Pullback(Linear(), lambda items: [[float("nan")] for _ in items], "objects")(["a", "b"])


# -- kernels that are learned never go out of range -------------------------------------------------------------------
LEARNABLE = [
    Gaussian([1.0, 2.0, 3.0]),
    Matern(0.5, 1.0),
    Matern(1.5, 1.0),
    Matern(9.5, [1.0, 1.0, 2.0]),
    Laplacian(1.0),
    RationalQuadratic(1.0, 2.0),
    TensorMatern(4, 1.0),
    Polynomial(7, 1.0, 1.0),
    2.0 * Gaussian(1.0) + Constant(1.0),
    (3.0 * Polynomial(3)) * (1.0 + Matern(2.5, 1.0)),
    (2.0 * Gaussian(1.0) + 1.0).normalized(),
    Pullback(0.5 * Gaussian(1.0), torch.sin),
]

raws = st.floats(allow_nan=False, width=32)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("kernel", LEARNABLE, ids=repr)
@given(data=st.data())
def test_any_raw_vector_gives_an_admissible_kernel(kernel: Kernel, dtype: torch.dtype, data: st.DataObject) -> None:
    names = list(kernel.hyperparameter_values())
    pack, _ = kernel.packing(names)
    raw = torch.tensor(data.draw(st.lists(raws, min_size=pack.size, max_size=pack.size)), dtype=dtype)
    raw.requires_grad_()
    for Z in (torch.from_numpy(X).to(dtype), torch.zeros(2, 3, dtype=dtype)):
        changed = kernel.replace(pack.unpack(raw))
        gram = changed(Z)
        assert bool(torch.isfinite(gram).all())
        (gradient,) = torch.autograd.grad(gram.sum(), raw)
        assert not bool(torch.isnan(gradient).any())


@pytest.mark.parametrize("kernel", LEARNABLE, ids=repr)
def test_raw_and_value_agree(kernel: Kernel) -> None:
    names = list(kernel.hyperparameter_values())
    pack, raw = kernel.packing(names)
    for name, value in pack.unpack(raw).items():
        torch.testing.assert_close(value, kernel.hyperparameter_values()[name])


def test_learning_from_zero_starts_at_a_finite_point() -> None:
    _, raw = Polynomial(2, 1.0, 0.0).packing(["coef0"])
    assert bool(torch.isfinite(raw).all())


def test_numbers_are_plain() -> None:
    learned = (
        torch.tensor(2.0, requires_grad=True) * Gaussian(torch.tensor([1.0, 2.0, 3.0], requires_grad=True))
    ).numbers()
    assert type(learned.scale) is float
    assert type(learned.kernel.lengthscale) is np.ndarray
    assert learned == 2.0 * Gaussian([1.0, 2.0, 3.0])


def test_kernels_work_in_threads() -> None:
    kernel = Neural(nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5)).double(), Gaussian(1.0))
    expected = kernel(X)
    results: list[Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(clone(kernel)(X))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for result in results:
        torch.testing.assert_close(result, expected)
    assert len(results) == 4


# -- networks while they are trained ----------------------------------------------------------------------------------
def noisy() -> nn.Sequential:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 2)).double()


def test_a_network_in_training_is_the_module_in_training_mode() -> None:
    module = noisy()
    kernel = 2.0 * Neural(module, Linear())
    twin, tensor = copy.deepcopy(module).train(), torch.from_numpy(X)
    state = torch.random.get_rng_state()
    trained = in_training(kernel, 7)._gram(tensor, None)
    assert torch.equal(torch.random.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(7)
        features = twin(tensor)
    torch.testing.assert_close(trained, 2.0 * features @ features.mT)
    assert not torch.allclose(trained, in_training(kernel, 8)._gram(tensor, None))
    assert torch.equal(module[1].running_mean, torch.zeros(4).double())
    torch.testing.assert_close(kernel._gram(tensor, None), kernel(X))  # the kernel itself has not changed
    module[2].eval()  # a member that its owner put into evaluation mode stays in it
    torch.testing.assert_close(in_training(kernel, 7)._gram(tensor, None), in_training(kernel, 8)._gram(tensor, None))


def test_running_statistics_are_those_of_torch() -> None:
    kernel, tensor = Neural(noisy(), Linear()), torch.from_numpy(X)
    batches = [tensor[:3], tensor[3:]]
    settled = with_statistics(kernel + 1.0, lambda k: [k._gram(batch, None) for batch in batches]).numbers()
    twin = copy.deepcopy(kernel.module)
    twin[2].eval()
    torch.optim.swa_utils.update_bn(batches, twin)
    ours = settled.left.module
    for name in ("running_mean", "running_var"):
        torch.testing.assert_close(getattr(ours[1], name), getattr(twin[1], name))
    torch.testing.assert_close(settled(X), Neural(twin.eval(), Linear())(X) + 1.0)
    assert has_statistics(kernel + 1.0) and not has_statistics(Neural(network(), Linear()))
    for weight in kernel.module.parameters():
        weight.requires_grad_(False)
    assert not has_statistics(kernel)  # a network that is not learned stays as it is


def test_held_out_rows_are_seen_as_new_samples() -> None:
    kernel, tensor = Neural(noisy(), Linear()), torch.from_numpy(X)
    held_out = torch.tensor([False, True, False, False, True, False])
    features = in_training(kernel, 3, held_out)._image(tensor)
    torch.testing.assert_close(features[~held_out], in_training(kernel, 3)._image(tensor[~held_out]))
    settled = with_statistics(kernel, lambda k: k._gram(tensor[~held_out], None))
    torch.testing.assert_close(features[held_out], settled._image(tensor[held_out]))


def test_a_module_that_begins_with_arrays_takes_them() -> None:
    images = RNG.standard_normal((5, 1, 6, 7))
    kernel = Neural(convolution(), Gaussian(1.0))
    assert kernel.domain == "objects" and Neural(network(), Linear()).domain == "vectors"
    torch.testing.assert_close(kernel(images[:, 0]), kernel(images))
    assert kernel == Neural(convolution(), Gaussian(1.0), domain="objects")
    with pytest.raises(ValueError, match=r"samples of shape \(1, 3\).*more than 1 value"):
        in_training(Neural(noisy(), Linear()), 0)._image(torch.zeros(1, 3).double())
