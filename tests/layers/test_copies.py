"""What is copied, what looks writable, and what is said when a copy begins like another."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn
from tinyattn.errors import CheckpointError, GraphError, ShapeError
from tinyattn.testing import check_op


class Scaled(nn.Module):
    """Weights of its own, random ones, and no reset_parameters."""

    def __init__(self, size=4):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.table = nn.Parameter(ta.randn(size))
        self.gain = nn.Parameter(ta.ones(size))

    def forward(self, x):
        return self.linear(x) * self.table * self.gain


class Drawn(Scaled):
    def reset_parameters(self):
        self.table.data = ta.randn(4).data


def first_five(words, separator, rest):
    """The first five, and what is said of the rest."""
    return separator.join(words[:5]) + (rest.format(len(words) - 5) if len(words) > 5 else "")


@pytest.mark.parametrize("number", [0, 1, 2, 4, 5, 6, 7, 12])
def test_five_wrong_shapes_and_names_are_said_and_of_more_that_there_are_more(number):
    net = nn.Sequential(*(nn.Linear(2, 1, bias=False) for _ in range(12)))
    state = {name: value.clone() for name, value in net.state_dict().items()}
    names = [f"{i}.weight" for i in range(number)]
    wrong = {**state, **{name: ta.ones(3, 3) for name in names}}
    lacking = {name: value for name, value in state.items() if name not in names}
    more = {**state, **{f"{i}.gain": ta.ones(1) for i in range(number)}}
    of_names = "state does not fit Sequential: missing {}, unexpected {}"
    shapes = [f"{name} has shape (1, 2), got (3, 3)" for name in names]
    for given, text in (
        (wrong, "Sequential: " + first_five(shapes, "; ", "; and {} more")),
        (lacking, of_names.format(first_five(names, ", ", ", ..."), "nothing")),
        (more, of_names.format("nothing", first_five([*more][12:], ", ", ", ..."))),
    ):
        if not number:
            net.load_state_dict(given)
            continue
        with pytest.raises((ShapeError, CheckpointError)) as error:
            net.load_state_dict(given)
        assert str(error.value) == text


def layer_with(feed_forward, size=4):
    return nn.EncoderLayer(size, nn.MultiHeadedAttention(2, size), feed_forward)


def decoder_layer_with(feed_forward):
    attentions = (nn.MultiHeadedAttention(2, 4) for _ in range(2))
    return nn.DecoderLayer(4, *attentions, feed_forward)


STACKS = {
    "clones": (lambda module, n: nn.clones(module, n), "Scaled"),
    "Encoder": (lambda module, n: nn.Encoder(layer_with(module), n), r"Scaled \(feed_forward\)"),
    "Decoder": (
        lambda module, n: nn.Decoder(decoder_layer_with(module), n),
        r"Scaled \(feed_forward\)",
    ),
}


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("stack", STACKS)
def test_copies_that_begin_equal_are_named(stack, count):
    make, name = STACKS[stack]
    text = rf"all copies of {name} begin with equal values of table: define Scaled"
    with pytest.warns(UserWarning, match=text) as caught:
        stacked = make(Scaled(), count)
    assert [w.filename for w in caught] == [__file__] or stack != "clones"
    first, second = ([m for m in stacked.modules() if isinstance(m, Scaled)][i] for i in range(2))
    assert first.table.equal(second.table)
    assert not first.linear.weight.equal(second.linear.weight)


@pytest.mark.parametrize("stack", STACKS)
def test_nothing_is_said_of_copies_that_are_drawn_or_constant_or_alone(stack):
    make, _ = STACKS[stack]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stacked = make(Drawn(), 2)
        make(Scaled(), 1)
        constant = Scaled()
        constant.table.data = np.full(4, 2.0, np.float32)
        make(constant, 3)
    first, second = (m for m in stacked.modules() if isinstance(m, Drawn))
    assert not first.table.equal(second.table)


class Tables(nn.Module):
    """Some of its parameters vary, one has no numbers, and the others are constant."""

    def __init__(self, names, inside=None):
        super().__init__()
        self.gain = nn.Parameter(ta.ones(3))
        for name in names:
            setattr(self, name, nn.Parameter(ta.arange(4.0)))
        self.none = nn.Parameter(ta.ones(0))
        self.inside = inside


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_each_part_and_each_parameter_of_equal_copies_is_named(count):
    deepest = Tables(["rows", "columns", "depth"])
    whole = Tables(["first", "last"], nn.Sequential(Tables([]), Tables(["one"], deepest)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        nn.clones(whole, count)
    sentence = (
        "all copies of Tables{} begin with equal values of {}: define Tables.reset_parameters(), "
        "which draws them"
    )
    parts = [
        ("", "first, last"),
        (" (inside.1)", "one"),
        (" (inside.1.inside)", "rows, columns, depth"),
    ]
    expected = [sentence.format(*part) for part in parts] if count > 1 else []
    assert [str(warning.message) for warning in caught] == expected


# A module that keeps what it has computed


class Keeper(nn.Module):
    """Keeps its weights with their graph, alone or in a list."""

    def __init__(self, wrap=lambda weights: weights):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.wrap = wrap

    def forward(self, x):
        weights = self.linear(x)
        object.__setattr__(self, "weights", self.wrap(weights))
        return weights * x


def in_list(weights):
    return [weights]


def in_dict(weights):
    return {"last": (weights,)}


@pytest.mark.parametrize("wrap", [lambda weights: weights, in_list, in_dict])
def test_a_copy_names_the_attribute_with_a_graph(wrap):
    keeper = Keeper(wrap)
    keeper(ta.randn(2, 4))
    made = {
        "Keeper": (lambda: nn.clones(keeper, 2), "weights"),
        "EncoderLayer": (lambda: nn.Encoder(layer_with(keeper), 2), r"feed_forward\.weights"),
        "DecoderLayer": (lambda: nn.Decoder(decoder_layer_with(keeper), 2), "feed_forward.weights"),
    }
    for kind, (make, path) in made.items():
        with pytest.raises(GraphError, match=rf"{kind} is copied here, .* {path} was computed"):
            make()
    with pytest.raises(GraphError, match="Keeper is copied here, but its attribute weights"):
        check_op(keeper, [(ta.randn(2, 4),)])


class OnlyPadded(nn.Module):
    """An attention that takes (B, N, D) only, as a reader writes it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, queries, keys, values, mask=None, valid_lens=None):
        samples, length, size = queries.shape
        return self.linear(values).reshape(samples, length, size)


def test_a_layer_that_cannot_take_packed_samples_has_its_own_error():
    layer = nn.EncoderLayer(4, OnlyPadded(), nn.PositionwiseFeedForward(4, 8))
    encoder = nn.Encoder(layer, 2, skip_padding=True)
    with pytest.raises(ValueError, match="not enough values to unpack"):
        encoder(ta.randn(2, 3, 4), valid_lens=[3, 2])
    assert encoder(ta.randn(2, 3, 4)).shape == (2, 3, 4)


# Sequential


def test_a_module_set_by_name_on_a_sequential_is_its_next_one():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    model.head = nn.Linear(4, 2)
    x = ta.randn(5, 3)
    right = model.head(model[1](model[0](x)))
    assert model(x).equal(right)
    assert len(model) == 3
    assert list(model)[2] is model[-1] is model.head
    assert list(model.state_dict()) == ["0.weight", "0.bias", "head.weight", "head.bias"]
    assert [type(m) for m in model[1:]] == [nn.ReLU, nn.Linear]
    model.append(nn.ReLU())
    assert model(x).equal(right.relu())
    assert list(model._modules) == ["0", "1", "head", "3"]
    model.head = nn.Linear(4, 2, bias=False)
    assert list(model._modules) == ["0", "1", "head", "3"]
    model.insert(0, nn.Identity())
    assert list(model._modules) == ["0", "1", "2", "head", "4"]
    del model[-2]
    assert list(model._modules) == ["0", "1", "2", "3"]
    assert [type(m) for m in model] == [nn.Identity, nn.Linear, nn.ReLU, nn.ReLU]
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin(x).equal(model(x))


def test_a_sequential_runs_like_pytorchs():
    torch = pytest.importorskip("torch")
    models = []
    for lib in (ta.nn, torch.nn):
        model = lib.Sequential(lib.Linear(3, 4))
        model.act = lib.ReLU()
        model.out = lib.Linear(4, 2)
        models.append(model)
    ours, theirs = models
    assert list(ours.state_dict()) == list(theirs.state_dict())
    state = {name: value.numpy() for name, value in theirs.state_dict().items()}
    ours.load_state_dict(state)
    x = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)
    right = theirs(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(ours(ta.tensor(x)).numpy(), right, atol=1e-6)


def test_attributes_of_a_module_list_are_no_elements():
    modules = nn.ModuleList([nn.ReLU()])
    modules.extra = nn.Linear(2, 2)
    assert (len(modules), len(list(modules.parameters()))) == (1, 2)


# What was not loaded


def test_load_state_dict_returns_the_names_that_it_did_not_copy():
    layer = nn.Linear(2, 2)
    before = layer.state_dict()
    prefixed = {f"module.{name}": value for name, value in before.items()}
    found = layer.load_state_dict(prefixed, strict=False)
    assert found.missing_keys == ["weight", "bias"]
    assert found.unexpected_keys == ["module.weight", "module.bias"]
    missing, unexpected = layer.load_state_dict({"weight": ta.ones(2, 2)}, strict=False)
    assert (missing, unexpected) == (["bias"], [])
    assert layer.weight.equal(ta.ones(2, 2))
    assert layer.load_state_dict(before) == ([], [])


# What looks writable is the truth


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: nn.Linear(3, 2), ["in_features", "out_features"]),
        (lambda: nn.Embedding(3, 2), ["num_embeddings", "embedding_dim"]),
    ],
)
def test_the_sizes_of_a_layer_are_those_of_its_weight(make, names):
    for module in (make(), copy.deepcopy(make()), pickle.loads(pickle.dumps(make()))):
        assert sorted(getattr(module, name) for name in names) == [2, 3]
        for name in names:
            with pytest.raises(AttributeError, match="set another weight, got 7"):
                setattr(module, name, 7)
            with pytest.raises(AttributeError):
                delattr(module, name)
        module.weight = nn.Parameter(ta.ones(5, 4))
        assert sorted(getattr(module, name) for name in names) == [4, 5]
        for name in names:  # as a program does that resizes an Embedding
            setattr(module, name, getattr(module, name))
        assert "4" in repr(module)


WRITABLE = [  # a module, its arguments, an attribute, another value that counts
    (lambda: nn.Linear(3, 2), (ta.ones(1, 3),), "bias", None),
    (lambda: nn.LayerNorm(3), (ta.tensor([[1.0, 2.0, 4.0]]),), "eps", 1.0),
    (lambda: nn.RMSNorm(3), (ta.tensor([[1.0, 2.0, 4.0]]),), "eps", 1.0),
    (lambda: nn.Dropout(0.5), (ta.ones(50),), "p", 0.0),
    (lambda: nn.GELU(), (ta.ones(3),), "approximate", "tanh"),
    (lambda: nn.Softmax(-1), (ta.tensor([[1.0, 2.0], [3.0, 5.0]]),), "dim", 0),
    (lambda: nn.CrossEntropyLoss(), (ta.eye(2), [0, 1]), "label_smoothing", 0.3),
    (lambda: nn.CrossEntropyLoss(), (ta.eye(2), [0, 1]), "reduction", "sum"),
    (lambda: nn.CrossEntropyLoss(), (ta.tensor([[1.0, 2.0]] * 2), [0, 1]), "ignore_index", 0),
    (lambda: nn.MSELoss(), (ta.ones(3), ta.zeros(3)), "reduction", "sum"),
]


@pytest.mark.parametrize(("make", "arguments", "name", "value"), WRITABLE)
def test_a_setting_of_a_module_counts_at_the_next_call(make, arguments, name, value):
    module, other = make(), make()
    other.load_state_dict(module.state_dict())
    setattr(other, name, value)
    found = []
    for one in (module, other, copy.deepcopy(other), pickle.loads(pickle.dumps(other))):
        ta.manual_seed(1)
        found.append(one(*arguments))
    assert not found[0].equal(found[1])
    assert found[1].equal(found[2])
    assert found[1].equal(found[3])


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan"), "half", True])
def test_a_bad_dropout_probability_set_later_is_refused_at_the_next_call(p):
    module = nn.Dropout(0.5)
    module.p = p
    with pytest.raises(ValueError, match="probability lies between 0 and 1"):
        module(ta.ones(3))


def test_numbers_of_python_are_loaded_as_exactly_as_the_parameters():
    layer = nn.Linear(2, 1).double()
    layer.load_state_dict({"weight": [[0.1, 1e300]], "bias": [0.1]})
    assert layer.weight.tolist() == [[0.1, 1e300]]
    assert layer.bias.item() == 0.1


def test_a_deep_copy_of_a_model_has_no_gradients():
    """As in PyTorch: a learner of its own would add to the gradients of the model."""
    model, x = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), ta.tensor([[1.0, 3.0]])
    (model(x) ** 3).sum().backward()
    for learner in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert [parameter.grad for parameter in learner.parameters()] == [None] * 4
        (learner(x) ** 3).sum().backward()
        for mine, other in zip(model.parameters(), learner.parameters(), strict=True):
            assert mine.grad.equal(other.grad)
    leaf = ta.ones(2, requires_grad=True)
    leaf.sum().backward()
    assert copy.deepcopy(leaf).grad.tolist() == [1, 1]  # a Tensor's copy keeps it, as there


class Around(nn.Module):
    """It has the attributes of the module inside, as wrappers in many programs have."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.inner, name)


def test_a_module_that_asks_another_for_its_attributes_is_copied():
    """A copy has no inner module yet when Python asks it how it takes its state."""
    module = Around(nn.Linear(2, 3))
    for made in (copy.copy(module), copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert made.weight.equal(module.inner.weight)
