"""Attention step by step, forward and backward, with numbers that pen and paper can check.

Two samples, one query each, six keys. A key that points in the direction of the query gets a large
weight, and the output is close to its value. Only the first 3 keys of one sample are visible, and
the first 5 of the other.

  python examples/attention_by_hand.py
  python examples/attention_by_hand.py --out weights.png   also draw the weights
"""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable
from math import exp, sqrt
from pathlib import Path
from typing import Any

import programs

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import masks, nn, viz

QUERIES = [[2.0, 0.0], [-1.0, 1.0]]  # one for each sample
KEYS = [[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [1.0, 1.0], [2.0, 2.0]]
VALUES = [[10.0, 0.0], [20.0, 1.0], [30.0, 0.0], [40.0, 1.0], [50.0, 0.0], [60.0, 1.0]]
VALID_LENS = [3, 5]  # how many of the six keys are visible
GRAD = [1.0, -2.0]  # the gradient of a loss with respect to each output


def row(numbers: Iterable[Any]) -> str:
    return " ".join(f"{float(number):7.3f}" for number in numbers)


def dot(x: list[float], y: list[float]) -> float:
    return sum(a * b for a, b in zip(x, y, strict=True))


def columns(matrix: list[list[float]]) -> list[list[float]]:
    return [list(column) for column in zip(*matrix, strict=True)]


def by_hand(query: list[float], valid: int) -> None:
    """One query in Python's own numbers: the output, and the gradient of the query."""
    # Without the root, scores would grow with the width of queries and keys.
    scores = [dot(query, key) / sqrt(len(query)) for key in KEYS]
    print(f"  scores    q k / sqrt(2)              {row(scores)}")
    mask = [key < valid for key in range(len(KEYS))]
    print(f"  mask      key < {valid}                    {row(mask)}")
    # The sum leaves out an invisible key, so its weight is 0 for every score.
    powers = [exp(s) if visible else 0.0 for s, visible in zip(scores, mask, strict=True)]
    weights = [power / sum(powers) for power in powers]
    print(f"  softmax   exp / sum(exp)             {row(weights)}")
    output = [dot(weights, column) for column in columns(VALUES)]
    print(f"  output    weights V                  {row(output)}")

    print(f"  grad      of a loss, chosen          {row(GRAD)}")
    dweights = [dot(GRAD, value) for value in VALUES]
    print(f"  dweights  V grad                     {row(dweights)}")
    mean = dot(weights, dweights)
    print(f"  mean      weights dweights           {row([mean])}")
    dscores = [w * (d - mean) for w, d in zip(weights, dweights, strict=True)]
    print(f"  dscores   weights (dweights - mean)  {row(dscores)}")
    dquery = [dot(dscores, column) / sqrt(len(query)) for column in columns(KEYS)]
    print(f"  dquery    dscores K / sqrt(2)        {row(dquery)}")


def by_tinyattn(out: Path | None) -> None:
    """Both samples at once. Shapes: B samples, Q queries, K keys."""
    queries: Any = ta.tensor(QUERIES, requires_grad=True)  # (B, 2)
    q = queries.unsqueeze(1)  # (B, Q, 2) = (2, 1, 2)
    keys, values = ta.tensor([KEYS, KEYS]), ta.tensor([VALUES, VALUES])  # (B, K, 2)
    print(f"\ntinyattn: queries {q.shape}, keys {keys.shape}, values {values.shape}")

    scores = q @ keys.transpose(1, 2) / sqrt(2)
    weights = F.masked_softmax(scores, valid_lens=VALID_LENS)
    output = weights @ values
    print(f"  scores {scores.shape} -> weights {weights.shape} -> output {output.shape}")
    output.backward(ta.tensor([[GRAD], [GRAD]]))
    for sample in range(2):
        print(f"  sample {sample}: weights {row(weights[sample, 0])}")
        print(f"            output {row(output[sample, 0])}   dquery {row(queries.grad[sample])}")

    attention = nn.DotProductAttention()
    output = attention(q, keys, values, valid_lens=VALID_LENS)
    print(f"  nn.DotProductAttention, the same in one call: {row(output[0, 0])}")

    # A small network instead of the product: queries may then be wider than keys.
    ta.manual_seed(0)
    wide = ta.randn(2, 1, 20)
    additive = nn.AdditiveAttention(key_size=2, query_size=20, num_hiddens=8)
    projected, keys_projected = additive.W_q(wide).unsqueeze(2), additive.W_k(keys).unsqueeze(1)
    features = (projected + keys_projected).tanh()
    print(f"\nadditive: queries {wide.shape}, keys {keys.shape}")
    print(f"  W_q q {projected.shape} + W_k k {keys_projected.shape} -> tanh {features.shape}")
    print(f"  scores w_v tanh {additive.w_v(features).squeeze(-1).shape}")
    output = additive(wide, keys, values, valid_lens=VALID_LENS)
    print(f"  output of random weights: {row(output[0, 0])}  and  {row(output[1, 0])}")

    if out is not None:
        visible = masks.from_valid_lens(VALID_LENS, len(KEYS))
        titles = [f"sample {sample}" for sample in range(2)]
        if not out.suffix:
            out = out / "weights.png" if out.is_dir() else out.with_name(f"{out.name}.png")
        figure = viz.show_heatmaps(attention.attention_weights, titles=titles, mask=visible)
        out.parent.mkdir(parents=True, exist_ok=True)
        programs.save_picture(figure, out)
        print(f"\nthe weights are drawn in {out}")


@programs.complaints()
def main() -> None:
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="PNG", help="draw the weights into this file")
    args = parser.parse_args()
    print(f"keys   {KEYS}\nvalues {VALUES}")
    for sample, (query, valid) in enumerate(zip(QUERIES, VALID_LENS, strict=True)):
        print(f"\nsample {sample}: query {query}, the first {valid} of 6 keys are visible")
        by_hand(query, valid)
    by_tinyattn(args.out)


if __name__ == "__main__":
    programs.run(main)
