"""Mistakes of students: a class or a method that is not called, and options that say nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tinyattn as ta
import tinyattn.torch_names.nn as torch_nn
from tinyattn import functional as F
from tinyattn import interop, nn, optim
from tinyattn.errors import DtypeError, ShapeError
from tinyattn.generation import generate
from tinyattn.models import CausalLM
from tinyattn.testing import check_op, gradcheck
from tinyattn.torch_names.methods import take_methods
from tinyattn.torch_names.optim import lr_scheduler
from tinyattn.torch_names.utils.data import DataLoader as TorchLoader
from tinyattn.torch_names.utils.data import TensorDataset
from tinyattn.training import DataLoader, TrainingLoop
from tinyattn.training.distributed import DistributedDataParallel

take_methods()  # or the files that are collected next would see what the import gave

SIZES = {
    "model_type": "llama", "vocab_size": 50, "hidden_size": 8, "num_hidden_layers": 2,
    "num_attention_heads": 2, "intermediate_size": 16, "max_position_embeddings": 32,
}  # fmt: skip


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x)


class Rows:
    """A data set, whose class has the methods of one too."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return float(index)


def adam():
    return optim.Adam([ta.zeros(2, requires_grad=True)])


X = ta.ones(2, 2)
CLASSES = {
    "insert": lambda: nn.LoRA.insert(Net, ["layer"]),
    "merge_all": lambda: nn.LoRA.merge_all(Net),
    "LoRA": lambda: nn.LoRA(Net),
    "gradcheck": lambda: gradcheck(Net, [X]),
    "check_op": lambda: check_op(Net, [(X,)]),
    "Adam": lambda: optim.Adam(Net),
    "clip_grad_norm_": lambda: optim.clip_grad_norm_(Net, 1.0),
    "Schedule": lambda: optim.CosineSchedule(Net, 10),
    "TrainingLoop": lambda: TrainingLoop("a.safetensors", {"model": Net}),
    "Sequential": lambda: nn.Sequential(Net),
    "ModuleDict": lambda: nn.ModuleDict({"a": Net}),
    "clones": lambda: nn.clones(Net, 2),
    "EncoderLayer": lambda: nn.EncoderLayer(2, Net, Net),
    "rotary": lambda: nn.MultiHeadedAttention(1, 2, rotary=Net),
    "torch_state_dict": lambda: interop.load_torch_state_dict(Net, {}),
    "DistributedDataParallel": lambda: DistributedDataParallel(Net),
    "generate": lambda: generate(Net, [[1]], 3),
    "DataLoader": lambda: DataLoader(Net),
    "torch's DataLoader": lambda: TorchLoader(Net),
    "relu": lambda: F.relu(Net),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_in_place_of_what_it_makes_is_named(name):
    with pytest.raises(TypeError, match=r"the class Net \(write Net\(\.\.\.\)\)"):
        CLASSES[name]()


def test_a_method_that_is_not_called_is_named():
    model = Net()
    for use, name in (
        (lambda: optim.Adam(model.parameters), "parameters"),
        (lambda: model.load_state_dict(model.state_dict), "state_dict"),
        (lambda: F.relu(X.mean), "mean"),
    ):
        with pytest.raises(TypeError, match=rf"the method {name} \(write {name}\(\.\.\.\)\)"):
            use()
    with pytest.raises(DtypeError, match=r"add does not take .*the method mean \(write mean"):
        X + X.mean


@pytest.mark.parametrize("kind", [np.float32, np.int64, float, Net])
def test_a_class_in_place_of_a_number_is_named(kind):
    for operate in (
        lambda: X + kind, lambda: kind * X, lambda: X**kind, lambda: X > kind,
        lambda: ta.maximum(X, kind), lambda: X.masked_fill(X > 0, kind),
    ):  # fmt: skip
        with pytest.raises((DtypeError, TypeError), match=rf"class .*{kind.__name__}"):
            operate()
    x = ta.ones(2)
    with pytest.raises(DtypeError, match=rf"the class {kind.__name__} \(write"):
        x += kind
    assert x.tolist() == [1, 1]


def test_a_state_dict_is_no_list_of_parameters():
    with pytest.raises(TypeError, match=r"such as model\.parameters\(\), got dict"):
        optim.Adam(Net().state_dict())


def test_a_tuple_with_tensors_is_taken_apart():
    net = nn.Sequential(torch_nn.GRU(4, 3), nn.Linear(3, 2))
    with pytest.raises(TypeError, match="got tuple: take one of its Tensors"):
        net(ta.zeros(5, 2, 4))
    with pytest.raises(TypeError, match="got tuple: wrap it with"):
        F.relu((1.0, 2.0))


CALLS_OF_ONE_TENSOR: dict[str, Callable[[Any], Any]] = {
    "a module": nn.Linear(2, 2),
    "mean": ta.mean,
    "sum": ta.sum,
    "softmax": F.softmax,
    "a loss": lambda x: F.mse_loss(x, X),
    "linear, as weight": lambda x: F.linear(X, x),
}


@pytest.mark.parametrize("name", CALLS_OF_ONE_TENSOR)
def test_tensors_in_a_list_are_not_said_to_be_wrapped(name: str) -> None:
    """`ta.tensor([a, b])` copies them without their graphs: no gradient would reach them."""
    a, b = (ta.ones(2, requires_grad=True) * n for n in (1, 2))
    for value in ([a, b], (a, b), {"a": a}, [1.0, [b]]):
        text = "or join them with stack$"
        with pytest.raises(TypeError, match=text) as caught:
            CALLS_OF_ONE_TENSOR[name](value)
        assert f"got {type(value).__name__}: take one of its Tensors" in str(caught.value)


@pytest.mark.parametrize("loader", [DataLoader, TorchLoader])
def test_data_without_samples_get_a_sentence(loader):
    for data in (None, 5, (i for i in range(3)), {1, 2}, {"a": 1}, zip([1], [2], strict=True)):
        for options in ({}, {"shuffle": True}):
            with pytest.raises(TypeError, match=rf"integer indices, got {type(data).__name__}"):
                loader(data, **options)
    with pytest.raises(TypeError, match="collate_fn must be a function, got int 5"):
        loader([1, 2], collate_fn=5)
    for kind in (Rows, list, dict):
        with pytest.raises(TypeError, match=rf"the class {kind.__name__} \(write"):
            loader(kind)


def test_a_data_set_of_tensors_takes_them_one_by_one():
    for columns in (((X, X),), ([1, 2], [3, 4])):
        with pytest.raises(TypeError, match="each argument of a TensorDataset must be a Tensor"):
            TensorDataset(*columns)
    for columns in ((), (X, ta.ones(3)), (ta.tensor(1.0),), (X, ta.tensor(1.0))):
        with pytest.raises(ShapeError, match="data are Tensors of one length"):
            TensorDataset(*columns)


def test_schedules_say_what_is_missing_or_wrong():
    for options in ({}, {"epochs": 3}, {"steps_per_epoch": 3}):
        with pytest.raises(
            ValueError, match=r"^(epochs|steps_per_epoch) \(or else total_steps\) must be"
        ):
            lr_scheduler.OneCycleLR(adam(), 0.1, **options)
    for make in (
        lambda: lr_scheduler.StepLR(adam(), 1, -0.5),
        lambda: lr_scheduler.MultiStepLR(adam(), [3], gamma=-0.5),
        lambda: lr_scheduler.ExponentialLR(adam(), "0.1"),
    ):
        with pytest.raises(ValueError, match="gamma must be a number >= 0"):
            make()


def test_recurrent_layers_say_what_is_wrong():
    x = ta.zeros(5, 2, 4)
    for state, came in (
        (0, r"\[0\]"),
        ([2, 3], r"\[2, 3\]"),
        (ta.zeros(1, 2, 9), r"\[\(1, 2, 9\)"),
    ):
        with pytest.raises(ShapeError, match=rf"a state is \(1, 2, 3\), got {came}"):
            torch_nn.GRU(4, 3)(x, state)
    with pytest.raises(ShapeError, match=r"a pair \(h, c\), each \(1, 2, 3\), got \[\(1, 2, 3\)\]"):
        torch_nn.LSTM(4, 3)(x, ta.zeros(1, 2, 3))
    for kind in ("RNN", "GRU", "LSTM"):
        with pytest.raises(ShapeError, match=f"^{kind} takes one position or more, got none"):
            getattr(torch_nn, kind)(4, 3)(x[:0])


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"groups": 0}, ShapeError, "groups must be an integer >= 1, got 0"),
        ({"groups": 4}, ValueError, "groups divide in_channels and out_channels"),
        ({"in_channels": "4"}, ShapeError, "in_channels must be"),
        ({"out_channels": 4.0}, ShapeError, "out_channels must be"),
        ({"stride": 0}, ShapeError, "stride must be an integer >= 1, got 0"),
        ({"dilation": 1.5}, ShapeError, "dilation must be"),
        ({"padding": "full"}, ShapeError, "padding must be an integer >= 0, got 'full'"),
    ],
)
def test_a_convolution_is_refused_when_it_is_made(options, error, words):
    sizes = {"in_channels": 4, "out_channels": 6, "kernel_size": 3}
    with pytest.raises(error, match=words):
        torch_nn.Conv1d(**sizes | options)


@pytest.mark.parametrize("size", [0, -1, 2.0, (1, 1, 1)])
def test_an_adaptive_pool_refuses_a_size_that_is_none(size):
    with pytest.raises(ShapeError, match="output_size"):
        torch_nn.AdaptiveAvgPool2d(size)(ta.ones(1, 1, 4, 4))


def test_batch_norm_refuses_numbers_that_would_give_nan():
    for options, words in (
        ({"eps": -1}, "eps must be a number >= 0"),
        ({"momentum": 2}, "momentum lies between 0 and 1"),
        ({"num_features": 4.0}, "num_features must be an integer"),
    ):
        with pytest.raises(ValueError, match=words):
            torch_nn.BatchNorm1d(**{"num_features": 4} | options)
    with pytest.raises(TypeError, match="x must be a Tensor, got list"):
        torch_nn.BatchNorm1d(4)([[1.0, 2.0, 3.0, 4.0]])


def test_gradcheck_and_check_op_refuse_what_proves_nothing():
    x = ta.ones(3, dtype=ta.float64, requires_grad=True)
    for eps in (0, "a", -1e-3):
        with pytest.raises(ValueError, match="eps must be a number >= 1e-12"):
            gradcheck(F.relu, x, eps=eps)
    with pytest.raises(TypeError, match="samples is a list of argument tuples"):
        check_op(F.relu, None)


def test_lora_takes_names():
    model = CausalLM(SIZES)
    for names in (None, 5):
        with pytest.raises(TypeError, match=r"names are attributes, such as .*, got"):
            nn.LoRA.insert(model, names)


def test_options_of_a_text_are_checked_when_they_are_given():
    model = CausalLM(SIZES)
    model.chat_template = "{{ messages[0]['content'] }}"
    messages = [{"role": "user", "content": "a"}]
    for options, error, words in (
        ({"temperature": -1}, ValueError, "temperature must be a number >= 0, got -1"),
        ({"top_k": 3}, ValueError, "give a temperature above 0 too"),
        ({"top_p": 2, "temperature": 1}, ValueError, "top_p lies between 0 and 1"),
        ({"max_new_tokens": 0}, ShapeError, "max_new_tokens must be an integer >= 1, got 0"),
        ({"stop": "a"}, TypeError, "stop is a list of texts"),
        ({"stop": None}, TypeError, "stop is a list of texts that are not empty, got None"),
        ({"stop": iter("a")}, TypeError, "stop is a list of texts"),  # used up by the check
        ({"temperatur": 1}, TypeError, "generate_text take .*keyword argument 'temperatur'"),
        ({"num_beams": 2}, TypeError, "unexpected keyword argument 'num_beams'"),
    ):
        with pytest.raises(error, match=words):
            model.continued([1, 2], model.next_scores(), **options)
        pytest.importorskip("jinja2")
        with pytest.raises(error, match=words) as caught:
            model.chat(messages, **options)
        assert "check_options" not in str(caught.value)  # which users do not call


def test_a_rotation_of_another_width_or_kind_is_refused():
    for make in (
        lambda rotary: nn.MultiHeadAttention(8, 8, 8, 8, 2, rotary=rotary),
        lambda rotary: nn.MultiHeadedAttention(2, 8, rotary=rotary),
    ):
        with pytest.raises(ShapeError, match="a head has 4 numbers, and its rotary turns 8"):
            make(nn.RotaryEmbedding(8))
        for added in (nn.PositionalEncoding(4), nn.LearnedPositionalEncoding(4)):
            with pytest.raises(TypeError, match="Encoding, which is added to the inputs"):
                make(added)


def test_lists_of_modules_are_joined():
    a, b, c = nn.Linear(1, 2), nn.Linear(2, 3), nn.ReLU()
    for kind in (nn.ModuleList([a]), nn.Sequential(a)):
        joined = kind + nn.ModuleList([b, c])
        assert type(joined) is type(kind)
        assert list(joined) == [a, b, c]
        assert list(kind + kind) == [a, a]
        assert list(kind) == [a]
        same = kind
        kind += [b]
        assert kind is same
        assert list(same) == [a, b]
        with pytest.raises(TypeError, match="takes a list, got int"):
            kind + 3


def test_a_dict_of_modules_takes_a_dict_or_pairs():
    a, b = nn.Linear(1, 2), nn.ReLU()
    assert dict(nn.ModuleDict([("a", a), ("b", b)])) == {"a": a, "b": b}
    assert dict(nn.ModuleDict(nn.ModuleDict({"a": a}))) == {"a": a}
    for modules in (None, 5, [a], [("a", a, b)], nn.ModuleDict):
        with pytest.raises(TypeError, match=r"a ModuleDict takes a dict or pairs \(name, module\)"):
            nn.ModuleDict(modules)
    for key in ("", "a.b", 3, "train"):
        with pytest.raises(KeyError, match="a key is a word without dots"):
            nn.ModuleDict({key: a})
    with pytest.raises(KeyError, match="a key is a word without dots"):
        nn.Sequential({"": a})


@pytest.mark.parametrize("value", [np.array(None), np.array([1, 2], object), np.complex64(2)])
def test_where_refuses_what_is_no_real_number(value):
    """An array of None became NaN, and other objects a KeyError."""
    with pytest.raises(DtypeError, match=r"real numbers, got (object|complex64); a complex one"):
        ta.where(ta.tensor([True, False]), value, ta.ones(2))


REPRS = [
    (torch_nn, "Conv1d(4, 8, kernel_size=(3,))"),
    (
        torch_nn,
        "Conv1d(4, 8, kernel_size=(3,), stride=(2,), padding=(1,), dilation=(2,), bias=False)",
    ),
    (torch_nn, "Conv2d(4, 8, kernel_size=(3, 2), stride=(2, 1), padding='valid')"),
    (torch_nn, "BatchNorm1d(4)"),
    (torch_nn, "BatchNorm2d(4, eps=0.1, momentum=None, affine=False, track_running_stats=False)"),
    (torch_nn, "RNN(2, 3, nonlinearity='relu', bidirectional=True)"),
    (torch_nn, "GRU(2, 3, num_layers=2, bias=False, batch_first=True, dropout=0.5)"),
    (torch_nn, "LSTM(2, 3)"),
    (torch_nn, "GRUCell(2, 3, bias=False)"),
    (torch_nn, "LSTMCell(2, 3)"),
]


@pytest.mark.parametrize(("library", "text"), REPRS)
def test_a_repr_shows_what_is_no_default_and_makes_the_module_again(library, text):
    assert repr(eval(f"nn.{text}", {"nn": library})) == text


def test_a_forward_without_a_return_is_asked_for_it():
    class Forgetful(nn.Module):
        def forward(self, x):
            x.relu()

    with pytest.raises(TypeError, match=r"got NoneType: is a return missing\?"):
        F.mse_loss(Forgetful()(ta.ones(2)), ta.ones(2))
