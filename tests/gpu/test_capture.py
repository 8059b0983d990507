"""A captured training step does what the step does, launch after launch.

On the stand-in, whose graphs run again what they recorded, or with `-m gpu` on a GPU.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np
import pytest
import stand_in
from common import assert_close, rng_of
from formulas import reference
from stand_in.blas import Library
from test_device_training import Tagger

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, optim
from tinyattn.errors import DtypeError, GraphError, InPlaceError, ShapeError
from tinyattn.kernels.gpu import cublas
from tinyattn.kernels.gpu import optimizer as optimizer_kernels


@pytest.fixture
def graphs(cuda, monkeypatch):
    """The device, and where it is the stand-in its cuBLAS."""
    if cuda is stand_in.MODULE:
        library = Library(stand_in.graphs.note)
        monkeypatch.setattr(cublas, "load", lambda: library)
    return cuda


def batches(count):
    rng = rng_of(4)
    for _ in range(count):
        ids = rng.randint(1, 11, (3, 6))
        ids[0, 4:] = 0
        yield ids, np.where(ids == 0, -100, rng.randint(0, 3, (3, 6)))


def training(dtype=ta.float64, dropout=False):
    ta.manual_seed(0)
    model = Tagger().to(dtype).to("cuda")
    for module in model.modules():
        if isinstance(module, nn.Dropout) and not dropout:
            module.p = 0.0
    optimizer = optim.AdamW(model.parameters(), 1e-2)
    schedule = optim.CosineSchedule(optimizer, 20, 4)

    def step(ids, targets):
        loss = F.cross_entropy(model(ids).reshape(-1, 3), targets.reshape(-1))
        optimizer.zero_grad()
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return model, optimizer, schedule, step


def test_replays_are_steps(graphs):
    """Losses, weights and the optimizer's state as without a graph; rates follow the schedule."""
    after = {}
    for captured in (False, True):
        model, optimizer, schedule, step = training()
        data = list(batches(9))
        losses = []
        if captured:
            step = ta.capture(step, *data[0], warm_up=2)
        else:
            for _ in range(3):  # two to warm up, one while it is recorded
                step(*(ta.tensor(x, device="cuda") for x in data[0]))
        for ids, targets in data[1:]:
            schedule.step()
            if not captured:
                ids, targets = ta.tensor(ids, device="cuda"), ta.tensor(targets, device="cuda")
            losses.append(step(ids, targets).item())
        after[captured] = losses, model.state_dict(), optimizer.state_dict()
    np.testing.assert_allclose(after[True][0], after[False][0], rtol=1e-10)
    for name, value in after[False][1].items():
        assert_close(after[True][1][name].numpy(), value.numpy(), 1e-8)
    assert (
        after[True][2]["steps"] == after[False][2]["steps"] == [11] * len(after[True][2]["steps"])
    )


def test_dropout_is_fresh_in_every_replay(graphs):
    """And the mask of backward is that of forward."""
    x = ta.ones(64, dtype=ta.float64, device="cuda", requires_grad=True)

    def step(scale):
        x.grad = None
        out = F.dropout(x * scale, 0.5)
        out.sum().backward()
        return out, x.grad

    ta.manual_seed(3)
    seed = ta.base.random.dropout_seed()  # what the third call of dropout would draw
    for _ in range(2):
        seed = ta.base.random.dropout_seed()
    ta.manual_seed(3)
    captured = ta.capture(step, np.ones(()))
    masks = []
    for replay in range(4):
        out, grad = (tensor.numpy() for tensor in captured(np.array(3.0)))
        np.testing.assert_array_equal(out, 3 * (grad / 3))
        masks.append(out != 0)
        draws = replay + 3  # two to warm up, one while it was recorded
        right = reference.keep_mask((64,), 0.5, (seed + draws * 0x9E3779B97F4A7C15) % 2**64)
        np.testing.assert_array_equal(masks[-1], right)
    assert len({mask.tobytes() for mask in masks}) == 4


def test_dropout_of_wide_heads_is_fresh_too(graphs):
    """Of attention that fits no tile, and runs as the reference does."""
    step = ta.capture(
        lambda x: F.scaled_dot_product_attention(x, x, x, valid_lens=[4], dropout_p=0.5),
        np.ones((1, 5, 300)),
    )
    assert len({step(np.ones((1, 5, 300))).numpy().tobytes() for _ in range(4)}) > 1


def test_padding_is_skipped_in_a_captured_step(graphs):
    """The rows that are kept are chosen once, when the step is recorded."""
    ta.manual_seed(0)
    attention = nn.MultiHeadedAttention(2, 8, 0.0)
    layer = nn.EncoderLayer(8, attention, nn.PositionwiseFeedForward(8, 16, 0.0), 0.0)
    encoder = nn.Encoder(layer, 1, skip_padding=True).to(ta.float64).to("cuda")
    optimizer = optim.AdamW(encoder.parameters(), 1e-3)

    def step(x):
        optimizer.zero_grad()
        out = encoder(x, valid_lens=[3, 5])
        (out * out).mean().backward()
        return out, encoder.layers[0].self_attn.W_k.weight.grad

    batches_of_x = rng_of(6).standard_normal((3, 2, 5, 8))
    captured = ta.capture(step, batches_of_x[0])
    for x in batches_of_x[1:]:
        found = [result.numpy() for result in captured(x)]
        for actual, right in zip(found, step(ta.tensor(x, device="cuda")), strict=True):
            assert_close(actual, right.numpy(), 1e-11)


def test_training_with_dropout_learns(graphs):
    _, _, _, step = training(ta.float32, dropout=True)
    data = next(batches(1))
    step = ta.capture(step, *data)
    losses = [step(*data).item() for _ in range(20)]
    assert min(losses[-5:]) < min(losses[:5])


def test_inputs_may_lie_anywhere(graphs):
    """On the host or on the device, as arrays or Tensors, in any layout."""
    double = ta.capture(lambda x: x * 2, np.zeros((2, 3)))
    x = np.arange(6.0).reshape(3, 2).T
    for given in (x, ta.tensor(x), ta.tensor(x, device="cuda"), graphs.asarray(x)):
        assert double(given).tolist() == (2 * x).tolist()


def test_what_does_not_fit_is_refused(graphs):
    double = ta.capture(lambda x: x * 2, np.zeros((2, 3)))
    with pytest.raises(TypeError, match="takes 1 inputs, got 2"):
        double(1, 2)
    with pytest.raises(ShapeError, match=r"input 0 was captured as \(2, 3\), got \(3,\)"):
        double(np.zeros(3))
    with pytest.raises(DtypeError, match="input 0 was captured as float64, got float32"):
        double(np.zeros((2, 3), np.float32))
    for wrong in (0, -1, 1.5, True, "2", None):
        with pytest.raises(ValueError, match="at least one step"):
            ta.capture(lambda x: x, np.zeros(3), warm_up=wrong)
    with pytest.raises(TypeError, match="step must be a function, got int"):
        ta.capture(5, np.zeros(3))
    assert ta.base.backend.capturing.step is None


def test_a_step_that_waits_cannot_be_captured(graphs):
    """The error says so, and afterwards everything works as before."""
    x = ta.ones(3, device="cuda", requires_grad=True)
    with pytest.raises(GraphError, match=r"cannot be captured.*does it read a value back"):
        ta.capture(lambda y: (x * y).sum().item(), np.ones(3))
    x.grad = ta.ones(3, device="cuda")
    with pytest.raises(GraphError, match=r"SGD cannot be captured.*Adam and AdamW can"):
        ta.capture(lambda y: optim.SGD([x]).step(), np.ones(3))
    with pytest.raises(GraphError, match="cannot capture another"):
        ta.capture(lambda y: ta.capture(lambda z: z, y), np.ones(3))
    assert (x @ x).item() == 3
    assert ta.base.backend.capturing.step is None


def test_constants_of_the_step_stay(graphs):
    """Masks and lists that the step itself makes are copied once, and kept."""

    def step(scores):
        return F.masked_softmax(scores, valid_lens=[1, 2])[:, 0, [0, 1]]

    softmax = ta.capture(step, np.zeros((2, 1, 3)))
    for _ in range(3):
        assert softmax(np.zeros((2, 1, 3))).tolist() == [[1.0, 0.0], [0.5, 0.5]]


def test_ids_out_of_range_are_still_found(graphs):
    weight = ta.ones(4, 3, device="cuda")
    look_up = ta.capture(lambda ids: F.embedding(ids, weight), np.array([0, 1]))
    assert look_up(np.array([2, 3])).sum().item() == 6
    with pytest.raises(IndexError, match="token id 4 is out of range"):
        look_up(np.array([2, 4])).numpy()


def test_integers_are_multiplied_too(graphs):
    a, b = np.arange(6).reshape(2, 3), np.arange(12).reshape(3, 4)
    product = ta.capture(lambda x, y: x @ y, a, b)
    assert product(a, b).tolist() == (a @ b).tolist()
    assert product(a + 1, b).tolist() == ((a + 1) @ b).tolist()


def test_a_parameter_in_another_order_is_refused(graphs):
    """The numbers of a step would stay what they were when it was captured."""
    weight = ta.tensor(np.arange(6.0).reshape(2, 3).T, device="cuda", requires_grad=True)
    assert not weight.data.flags.c_contiguous
    optimizer = optim.Adam([weight], 0.1)

    def step(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

    with pytest.raises(GraphError, match=r"parameter 0 \(3, 2\) is not in C order on the device"):
        ta.capture(step, np.ones((3, 2)))
    step(ta.ones(3, 2, dtype=ta.float64, device="cuda"))  # as usual


def test_a_graph_that_needs_what_a_replay_overwrites_cannot_be_differentiated(graphs):
    """A parameter, or a result of the captured step: as after any other change in place."""
    weight = ta.tensor([1.0, 2.0], device="cuda", requires_grad=True)
    optimizer = optim.Adam([weight], 0.1)

    def step(x):
        optimizer.zero_grad()
        (weight * x).sum().backward()
        optimizer.step()

        return x * 2

    captured = ta.capture(step, np.ones(2))
    result = captured(np.ones(2))
    scale = ta.ones(2, dtype=result.dtype, device="cuda", requires_grad=True)
    for graph in (lambda: weight * weight, lambda: scale * result):
        recorded = graph().sum()
        captured(np.ones(2))
        with pytest.raises(InPlaceError, match="changed in place"):
            recorded.backward()
        recorded = graph().sum()
        recorded.backward()


Results = namedtuple("Results", "loss x")


@pytest.mark.parametrize(
    "form",
    [
        lambda a, b: (a, b),
        lambda a, b: [a, b],
        lambda a, b: Results(a, b),
        lambda a, b: {"loss": a, "x": b},
        lambda a, b: {"pair": [a, (b, None)]},
    ],
)
def test_results_keep_their_form_and_are_overwritten_by_the_next_call(graphs, form):
    """They have no graph, because backward has freed it, and one that needs them is told."""
    weight = ta.ones(2, dtype=ta.float64, device="cuda", requires_grad=True)

    def step(x):
        y = weight * x
        return form((y * y).sum(), y)

    def tensors(results):
        if isinstance(results, ta.Tensor):
            return [results]
        values = results.values() if isinstance(results, dict) else results or ()
        return [tensor for value in values for tensor in tensors(value)]

    captured = ta.capture(step, np.ones(2))
    results = captured(np.array([1.0, 2.0]))
    assert type(results) is type(form(0, 0))
    loss, y = tensors(results)
    assert (loss.item(), y.tolist()) == (5.0, [1.0, 2.0])
    assert not loss.requires_grad
    assert not y.requires_grad
    recorded = (weight * y).sum()
    captured(np.array([3.0, 4.0]))
    assert (loss.item(), y.tolist()) == (25.0, [3.0, 4.0])
    with pytest.raises(InPlaceError, match="changed in place"):
        recorded.backward()


def test_a_parameter_on_the_host_is_refused(graphs):
    """No replay would change it."""
    weight = ta.tensor([1.0, 2.0], requires_grad=True)
    optimizer = optim.Adam([weight], 0.1)

    def step(x):
        weight.grad = ta.ones(2)
        optimizer.step()

    with pytest.raises(GraphError, match=r"parameter 0 \(2,\) is not in C order on the device"):
        ta.capture(step, np.ones(2))


def test_the_tables_of_a_captured_step_live_as_long_as_its_graph(graphs, monkeypatch):
    """A replay reads the addresses of the arrays there."""
    made = []
    lists_of = optimizer_kernels.lists_of

    def noted(*lists):
        made.append(lists_of(*lists))
        return made[-1]

    monkeypatch.setattr(optimizer_kernels, "lists_of", noted)
    _, _, _, step = training()
    data = next(batches(1))
    step(*(ta.tensor(x, device="cuda") for x in data))
    captured = ta.capture(step, *data, warm_up=1)
    *_, clipped, moved = made  # those of the recorded step
    needed = {id(array) for array in captured.needed}
    for lists in (clipped, moved):
        assert {id(lists.table.base), id(lists.blocks.base)} <= needed
