"""Functions and methods take their arguments under the names that PyTorch gives them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import tinyattn.torch_names as ours
from tinyattn.engine.rules import OF_SIZES
from tinyattn.torch_names.devices import MAKERS as MAKES
from tinyattn.torch_names.marks import other_names

# Of which nothing depends here: where results are written, how memory is used, names of results and
# of old dialects. And arguments of texts and of numbers, for which Python has other functions.
NOT_TAKEN = """
    a b l n t args out layout names check_invalid out_dtype sparse_grad output_size implicit path
    wrap stacklevel max max_values min min_indices indices values reverse separator list item idx
    element test_element tensors split_sizes dims_self dims_other
""".split()  # noqa: SIM905


def names_taken(function: Any) -> set[str]:
    taken = set(other_names(function))
    while function is not None:
        for parameter in inspect.signature(function, follow_wrapped=False).parameters.values():
            taken.add(parameter.name)
            if parameter.kind is parameter.VAR_POSITIONAL:
                taken |= {*OF_SIZES}
        function = getattr(function, "__wrapped__", None)
        taken |= other_names(function).keys()
    return taken


def names_there(torch: Any, name: str, is_method: bool) -> set[str]:
    """Of all forms of a function of PyTorch."""
    forms = [
        [argument.name for argument in schema.arguments]
        for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}")
        if "out" not in schema.overload_name
    ]
    if is_method:
        forms = [form[1:] for form in forms if form and form[0] == "self"]
    return {"input" if n == "self" else n for form in forms for n in form} - {*NOT_TAKEN}


def test_all_arguments_of_functions_and_methods_have_their_names(torch: Any) -> None:
    missing, walked = {}, 0
    for owner, there in ((ours, torch), (ours.Tensor, torch.Tensor)):
        is_method = owner is ours.Tensor
        for name in dir(ours.ones(1) if is_method else owner):
            function = getattr(type(ours.ones(1)) if is_method else owner, name, None)
            if name.startswith("_") or not inspect.isfunction(function) or name[-1] == "_":
                continue
            if not callable(getattr(there, name, None)):
                continue
            wanted = names_there(torch, name, is_method)
            walked += bool(wanted)
            if lacks := wanted - names_taken(function):
                missing[f"{'x' if is_method else 'torch'}.{name}"] = sorted(lacks)
    assert sorted(missing) == sorted(LEFT_OUT), missing
    assert walked > 200


# Arguments that are left out, by the functions that lack them; the scan names them.
LEFT_OUT = """
    torch.clone torch.manual_seed torch.mean torch.norm torch.normal torch.randperm torch.round
    torch.save x.mean x.new_empty
    x.new_full x.new_ones x.new_zeros x.norm x.pin_memory x.round x.to x.view
""".split()  # noqa: SIM905
CALLS = """
    torch.bmm(input=y, mat2=y); y.bmm(mat2=y); torch.dot(input=v, tensor=v); v.dot(tensor=v)
    torch.outer(input=v, vec2=v); v.outer(vec2=v)
    torch.pow(input=x, exponent=2); x.pow(exponent=2); x.clone().pow_(exponent=2)
    torch.pow(2, exponent=x); torch.max(x, other=-x); x.max(other=-x); torch.min(input=x, other=-x)
    torch.max(input=x, dim=1).values; torch.max(input=x); x.min(axis=0).values; x.sum(axis=0)
    torch.split(x, split_size_or_sections=2, dim=1)[1]; x.split(split_size=[1, 3], dim=1)[1]
    torch.split(tensor=x, split_size_or_sections=2, dim=1)[0]; torch.chunk(x, 2, axis=1)[1]
    x.swapaxes(axis0=0, axis1=1); torch.swapaxes(input=x, axis0=0, axis1=1)
    torch.transpose(input=x, dim0=0, dim1=1); x.reshape(shape=(4, 3)); x.view(size=(4, 3))
    torch.reshape(input=x, shape=(4, 3)); x.permute(dims=(1, 0)); torch.permute(x, dims=(1, 0))
    y.expand(size=(2, 3, 3)); v.repeat(repeats=(2, 1)); torch.tile(v, dims=(2, 2)); v.tile(2, 2)
    torch.zeros(size=(2, 3)); torch.ones(size=(2,)); torch.full(size=(2,), fill_value=3.0)
    x.new_zeros(size=(2,)); torch.cat(tensors=(x, x), axis=1); torch.cat([x, x], axis=1)
    torch.stack(tensors=[x, x], axis=1); torch.squeeze(x[:1], axis=0); x.unsqueeze(axis=1)
    torch.softmax(input=x, dim=1); torch.logsumexp(x, axis=1, keepdims=True); x.argmax(axis=1)
    torch.sort(input=x, axis=0).values; x.topk(2, axis=1).values; torch.gather(x, axis=1, index=i)
    torch.unbind(x, axis=1)[1]; torch.cumsum(x, axis=0); torch.flip(input=x, dims=(0,))
    torch.isclose(input=x, other=x + 1e-9, rtol=1e-3, atol=1e-6); x.isclose(other=x)
    torch.isin(elements=i, test_elements=i[0]); torch.baddbmm(y, batch1=y, batch2=y, beta=2)
    torch.where(condition=x > 0, input=x, other=-x); torch.masked_fill(x, mask=x > 0, value=1.0)
    x.detach().scatter(1, i, src=x.detach(), reduce="add"); x.scatter(dim=1, index=i, value=2.0)
    torch.allclose(input=x, other=x)
    torch.LongTensor([1, 2], device="cpu"); torch.zeros_like(x, memory_format=torch.preserve_format)
    x.t().contiguous(memory_format=torch.contiguous_format).view(-1); x.unfold(1, 3, 1)
    x.unfold(dimension=0, size=2, step=1); torch.divide(x.detach(), 2.0, rounding_mode="floor")
    x.repeat_interleave(torch.tensor([2, 0, 1]), dim=0); torch.repeat_interleave(v, repeats=2)
    x.repeat_interleave(torch.tensor([1, 0, 3, 2]), 1); torch.einsum("ij,kj->ik", [x, x])
    v.unsqueeze(0).masked_fill(x[:2] > 0, 7.0); v.masked_fill(x > 0, 0.0); torch.einsum("ij", (x,))
    F.pad(x, (-1, 2)); F.pad(x, (1, -1, -1, -1), value=2.0); F.pad(x, (-1, -1)); F.pad(x, (0, 0))
    F.cross_entropy(input=x, target=i[:, 0]); F.softplus(x, beta=2); torch.broadcast_to(v, (2, 4))
    F.mse_loss(x, x * 2, size_average=False); F.l1_loss(input=x, target=-x, reduce=False)
    F.nll_loss(x, i[:, 0], reduction="sum"); F.kl_div(x, x.abs(), size_average=False)
    F.mse_loss(x, -x, reduce=True); F.mse_loss(x, -x, size_average=None)
    F.mse_loss(x, -x, size_average=False, reduce=True)
    F.l1_loss(x, -x, size_average=True, reduce=False); F.mse_loss(x, -x, reduce=None)
    nn.KLDivLoss(size_average=False)(x, x.abs()); nn.MSELoss(reduce=False)(input=x, target=-x)
    nn.CrossEntropyLoss(size_average=True)(input=x, target=i[:, 0]); nn.ReLU()(input=x)
    nn.NLLLoss(reduction="none")(x, target=i[:, 0])
    nn.CrossEntropyLoss(v.detach().abs(), reduction="sum")(x, i[:, 0])
    nn.GELU()(input=x); nn.Tanh()(input=x); nn.Sigmoid()(input=x); nn.Identity()(input=x)
    nn.LayerNorm(4).double()(input=x); nn.RMSNorm(4).double()(x=x); nn.Dropout(0.0)(input=x)
    nn.Sequential(nn.Tanh(), nn.SiLU())(input=x); 0 * nn.Linear(4, 2).double()(input=x)
    nn.Embedding.from_pretrained(x.detach())(input=i[:, 0])
"""


@pytest.mark.filterwarnings("ignore:size_average", "ignore:reduction", "ignore:The reduce")
@pytest.mark.parametrize("call", [c.strip() for line in CALLS.split("\n") for c in line.split(";")])
def test_calls_with_pytorchs_names(torch: Any, call: str) -> None:
    """Values, and gradients for a random signed cotangent."""
    if not call:
        return
    rng = np.random.default_rng(0)
    data = {"x": rng.normal(size=(3, 4)), "y": rng.normal(size=(2, 3, 3)), "v": rng.normal(size=4)}
    cotangents: list[np.ndarray] = []
    results = []
    for space in (ours, torch):
        known = {"torch": space, "F": space.nn.functional, "nn": space.nn}
        known |= {name: space.tensor(array, requires_grad=True) for name, array in data.items()}
        known["i"] = space.tensor([[1, 0], [1, 1], [0, 3]])
        out = eval(call, known)
        if isinstance(out, bool):
            results.append([np.array(out)])
            continue
        results.append([out.detach().numpy()])
        if out.requires_grad:
            cotangents = cotangents or [rng.normal(size=tuple(out.shape))]
            (out * space.tensor(cotangents[0])).sum().backward()
        grads = [known[name].grad for name in data]
        results[-1] += [np.zeros(1) if g is None else g.numpy() for g in grads]
    for found, expected in zip(*results, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)


# What makes tensors, with its arguments by their places, and by their names in another order.
MAKERS = """
    torch.zeros(2, 3)                  torch.zeros(size=(2, 3))
    torch.ones(2, 3)                   torch.ones(size=(2, 3))
    torch.rand(2, 3)                   torch.rand(size=(2, 3))
    torch.randn(2, 3)                  torch.randn(size=(2, 3))
    torch.empty(2, 3).shape            torch.empty(size=(2, 3)).shape
    torch.full((2, 3), 1.5)            torch.full(fill_value=1.5, size=(2, 3))
    torch.full_like(x, 1.5)            torch.full_like(fill_value=1.5, input=x)
    torch.normal(1.0, 2.0, (2, 3))     torch.normal(size=(2, 3), std=2.0, mean=1.0)
    torch.normal(x, 2.0)               torch.normal(std=2.0, mean=x)
    torch.normal(1.0, abs(x))          torch.normal(std=abs(x), mean=1.0)
    torch.randint(1, 9, (2, 3))        torch.randint(size=(2, 3), high=9, low=1)
    torch.randint(9, (2, 3))           torch.randint(size=(2, 3), high=9)
    torch.randint(9, (2, 3))           torch.randint(9, size=(2, 3))
    torch.randperm(7)                  torch.randperm(n=7)
    torch.eye(2, 3)                    torch.eye(m=3, n=2)
    torch.arange(1, 9, 2)              torch.arange(step=2, end=9, start=1)
    torch.linspace(1, 2, 5)            torch.linspace(steps=5, end=2, start=1)
    torch.tensor([1, 2])               torch.tensor(data=[1, 2])
    torch.as_tensor([1, 2])            torch.as_tensor(data=[1, 2])
    torch.zeros_like(x)                torch.zeros_like(input=x)
    torch.ones_like(x)                 torch.ones_like(input=x)
    torch.rand_like(x)                 torch.rand_like(input=x)
    torch.randn_like(x)                torch.randn_like(input=x)
    torch.bernoulli(abs(x) / 9)        torch.bernoulli(input=abs(x) / 9)
    torch.bernoulli(x, 0.5)            torch.bernoulli(p=0.5, input=x)
    torch.multinomial(abs(x), 2, True) torch.multinomial(replacement=True, num_samples=2, input=abs(x))
"""  # noqa: E501


def test_a_mode_is_given_by_its_name() -> None:
    x = ours.ones(2, requires_grad=True)
    with ours.set_grad_enabled(mode=False):
        assert not (x * 2).requires_grad


def test_a_state_is_given_by_its_name() -> None:
    layer = ours.nn.Linear(2, 2)
    adam = ours.optim.Adam(layer.parameters())
    for owner in (layer, adam, ours.optim.lr_scheduler.StepLR(adam, 1)):
        owner.load_state_dict(state_dict=owner.state_dict())


def test_what_makes_tensors_takes_its_arguments_by_their_names() -> None:
    x = ours.tensor([[0.5, -1.5, 2.0], [1.0, 3.0, -0.25]])
    made = set()
    for line in MAKERS.strip().splitlines():
        results = []
        for call in line.replace("torch.", "; torch.").split(";")[1:]:
            ours.manual_seed(3)
            results.append(eval(call.strip(), {"torch": ours, "x": x}))
            made.add(call.strip().partition("(")[0].removeprefix("torch."))
        assert len(results) == 2, line
        if isinstance(results[0], tuple):
            assert results[0] == results[1], line
            continue
        assert results[0].dtype is results[1].dtype, line
        np.testing.assert_array_equal(*(x.numpy() for x in results), err_msg=line)
    assert made >= {*MAKES}


def test_two_names_of_one_argument_are_refused() -> None:
    x = ours.ones(2, 2)
    for call in (
        lambda: ours.cat([x], dim=0, axis=0), lambda: x.sum(dim=0, axis=0),
        lambda: ours.exp(input=x, x=x), lambda: x.sort(dim=0, axis=1),
        lambda: ours.chunk(x, 2, dim=0, axis=1),
    ):  # fmt: skip
        with pytest.raises(TypeError, match="names of one argument"):
            call()


def test_what_is_refused() -> None:
    x = ours.ones(2, 3)
    for call, message in (
        (lambda: x.scatter(0, ours.zeros(1, 3, dtype=ours.long), x, reduce="multiply"), "reduce="),
        (lambda: ours.nn.functional.pad(x, (-2, -2)), "takes 2 and 2 of 3 elements away"),
        (lambda: x.repeat_interleave(ours.tensor([1, 2, 3]), 0), "or 2 along dim 0, got"),
        (lambda: x.repeat_interleave(ours.tensor([1, -2]), 0), "integer >= 0"),
        (lambda: x.masked_fill(ours.ones(3, 2).bool(), 1), "does not broadcast with"),
        (lambda: x.masked_fill_(ours.ones(4, 2, 3).bool(), 1), "keeps the shape"),
        (lambda: x.exp(exponent=2), "unexpected argument 'exponent'"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=message):
            call()


def test_the_numbers_of_inputs_and_outputs_have_pytorchs_name(torch: Any) -> None:
    """Programs copy the first values of nn.Linear, and so call a private function."""
    for shape in ((3, 4), (2, 3, 5, 7)):
        fans = [x.nn.init._calculate_fan_in_and_fan_out(x.ones(shape)) for x in (ours, torch)]
        assert fans[0] == fans[1]


@pytest.mark.parametrize("name", ["normal_", "uniform_", "xavier_uniform_", "kaiming_normal_"])
def test_starting_values_come_from_a_generator(name: str) -> None:
    drawn = []
    for _ in range(2):
        generator = ours.Generator().manual_seed(3)
        before = ours.get_rng_state()
        drawn.append(getattr(ours.nn.init, name)(ours.empty(3, 4), generator=generator).tolist())
        assert ours.get_rng_state() == before
    assert drawn[0] == drawn[1]
