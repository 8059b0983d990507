"""Attention step by step, with numbers that can be checked with pen and paper.

Two samples, one query each, ten keys that are all equal, and values counting from 0 to 39. Equal
keys get equal scores, so each output is the plain mean of the visible values: the first 2 in one
sample, the first 6 in the other.

  python examples/attention_by_hand.py
  python examples/attention_by_hand.py --out weights.png   also draw the weights
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from math import exp, sqrt
from pathlib import Path

import tinyattn as ta
from tinyattn import functional as F
from tinyattn import nn, viz

QUERIES = [[1.0, 2.0], [-0.5, 1.0]]  # one for each sample
KEY = [1.0, 1.0]  # every key of both samples
VALUES = [[4.0 * key + column for column in range(4)] for key in range(10)]  # 0 to 39, row by row
VALID_LENS = [2, 6]  # how many of the ten keys are visible


def row(numbers: Iterable[float]) -> str:
    return "  ".join(f"{float(number):6.3f}" for number in numbers)


def by_hand() -> list[list[float]]:
    """One query after the other, in Python's own numbers."""
    print(f"10 keys, all {KEY}; their values: {VALUES[0]}, {VALUES[1]}, ... {VALUES[-1]}")
    outputs = []
    for sample, (query, valid) in enumerate(zip(QUERIES, VALID_LENS, strict=True)):
        print(f"\nsample {sample}: query {query}, the first {valid} of 10 keys are visible")

        # Without the root, scores would grow with the width of queries and keys.
        score = (query[0] * KEY[0] + query[1] * KEY[1]) / sqrt(len(KEY))
        scores = [score] * len(VALUES)
        print(f"  scores   q k / sqrt(2), (10,)    {row(scores[:7])}  ...")

        mask = [key < valid for key in range(len(scores))]
        print(f"  mask     key < {valid}, (10,)          {row(mask[:7])}  ...")

        # The sum leaves out an invisible key, so its weight is 0 for every score.
        powers = [exp(s) if visible else 0.0 for s, visible in zip(scores, mask, strict=True)]
        weights = [power / sum(powers) for power in powers]
        print(f"  exp      if visible, (10,)       {row(powers[:7])}  ...")
        print(f"  softmax  exp / sum(exp), (10,)   {row(weights[:7])}  ...")

        output = [sum(w * v for w, v in zip(weights, column, strict=True))
                  for column in zip(*VALUES, strict=True)]  # fmt: skip
        print(f"  output   weights V, (4,)         {row(output)}")
        outputs.append(output)
    return outputs


def by_tinyattn(out: Path | None) -> None:
    """Both samples at once. Shapes: B samples, Q queries, K keys, h hidden units."""
    queries = ta.tensor(QUERIES).unsqueeze(1)  # (B, Q, 2) = (2, 1, 2)
    keys = ta.ones(2, 10, 2)  # (B, K, 2)
    values = ta.tensor([VALUES, VALUES])  # (B, K, 4)
    print(f"\ntinyattn: queries {queries.shape}, keys {keys.shape}, values {values.shape}")

    scores = queries @ keys.transpose(1, 2) / sqrt(2)
    weights = F.masked_softmax(scores, valid_lens=VALID_LENS)
    output = weights @ values
    print(f"  scores {scores.shape} -> weights {weights.shape} -> output {output.shape}")

    dot = nn.DotProductAttention(dropout=0.5).eval()  # eval: dropout does nothing
    output = dot(queries, keys, values, valid_lens=VALID_LENS)
    print(f"  DotProductAttention  {row(output[0, 0])}\n  {'':19}  {row(output[1, 0])}")

    # A small network instead of the product, so queries may be wider than keys. Its weights are
    # random, but equal keys get equal scores from any network.
    ta.manual_seed(0)
    wide = ta.randn(2, 1, 20)
    additive = nn.AdditiveAttention(key_size=2, query_size=20, num_hiddens=8, dropout=0.1).eval()
    projected, keys_projected = additive.W_q(wide).unsqueeze(2), additive.W_k(keys).unsqueeze(1)
    features = (projected + keys_projected).tanh()
    print(f"\nadditive: queries {wide.shape}, keys {keys.shape}")
    print(f"  W_q q {projected.shape} + W_k k {keys_projected.shape} -> tanh {features.shape}")
    print(f"  scores w_v tanh {additive.w_v(features).squeeze(-1).shape}")
    output = additive(wide, keys, values, valid_lens=VALID_LENS)
    print(f"  AdditiveAttention    {row(output[0, 0])}\n  {'':19}  {row(output[1, 0])}")

    if out is not None:
        visible = ta.masks.from_valid_lens(VALID_LENS, 10)
        titles = [f"sample {sample}" for sample in range(2)]
        figure = viz.show_heatmaps(dot.attention_weights, titles=titles, mask=visible)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=120)
        print(f"\nthe weights are drawn in {out}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, metavar="PNG", help="draw the weights into this file")
    args = parser.parse_args()
    by_hand()
    by_tinyattn(args.out)


if __name__ == "__main__":
    main()
