"""What a GPU can reach at best, by arithmetic: `python -m benchmarks.gpu.roofline`.

A kernel takes at least the time of its arithmetic at the peak of the card, or of its bytes at the
peak of the memory, whichever is longer (Williams, Waterman and Patterson, "Roofline", 2009). So
these are bounds, and nothing here was measured.
"""

from __future__ import annotations

from typing import NamedTuple

from ..encoders import ENCODERS


class Card(NamedTuple):
    name: str
    float32: float  # operations a second, without tensor cores
    memory: float  # bytes a second
    source: str


CARDS = (
    Card("T4", 8.1e12, 320e9, "NVIDIA T4 datasheet, 2019"),
    Card("RTX 4090", 82.6e12, 1008e9, "NVIDIA Ada GPU architecture whitepaper, 2022"),
    Card("A100 SXM 80 GB", 19.5e12, 2039e9, "NVIDIA A100 datasheet, 2021"),
    Card("H100 SXM", 67e12, 3350e9, "NVIDIA H100 datasheet, 2023"),
)
# Attention's instructions for each product a * b + c, as `instructions` counts them. Here each
# takes the place of a product, though some cards execute integers beside floats.
PER_PRODUCT = 1.5


class Work(NamedTuple):
    name: str
    operations: float
    bytes: float
    instructions: float  # per product, where the kernel is ours

    def seconds(self, card: Card) -> float:
        return max(self.operations * self.instructions / card.float32, self.bytes / card.memory)


def works() -> list[Work]:
    rows, width = 16384, 2048
    batch, heads, length, head = 2, 8, 2048, 64
    products = 2 * batch * heads * length * length * head  # operations of one product of attention
    arrays = 4 * batch * heads * length * head  # bytes of q, of k, of v, or of the output
    medium = ENCODERS["medium"]
    tokens, d, ff = medium.batch * medium.length, medium.width, medium.ff
    weights = medium.layers * (4 * d * d + 2 * d * ff)
    step = 3 * 2 * tokens * weights  # forward, and two products of each backward
    state = 4 * 7 * weights  # Adam reads w, g, m and v, and writes w, m and v
    return [
        Work(f"softmax or layer norm of {rows} x {width}", 0, 8 * rows * width, 1),
        Work(f"dropout of {rows} x {width}", 0, 8 * rows * width, 1),
        Work(f"attention forward, {length} x {head}", 2 * products, 4 * arrays, PER_PRODUCT),
        # For dq scores and gradients of weights twice, and dq; the other kernel has four products.
        Work(f"attention backward, {length} x {head}", 9 * products, 14 * arrays, PER_PRODUCT),
        Work("a step of medium: products of layers", step, 0, 1),
        Work("a step of medium: Adam", 0, state, 1),
    ]


def table() -> str:
    """Microseconds, as a table of Markdown."""
    lines = ["| microseconds at least | " + " | ".join(card.name for card in CARDS) + " |"]
    lines.append("| --- |" + " ---: |" * len(CARDS))
    for work in works():
        cells = [f"{1e6 * work.seconds(card):,.0f}" for card in CARDS]
        lines.append(f"| {work.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
    for card in CARDS:
        peaks = f"{card.float32 / 1e12:g} TFLOP/s of float32, {card.memory / 1e9:g} GB/s"
        print(f"{card.name}: {peaks} ({card.source})")
