"""Pictures of attention, of training and of graphs. Only they need matplotlib.

Figures are made without pyplot, so no window opens, no display is needed, and matplotlib's backend
stays as it is. Save a figure with `figure.savefig("name.png")`. A notebook shows a figure that is
the value of a cell.

Texts may be in any script: a figure takes fonts of this machine that have its signs, or warns which
to install. The order and the joining of letters, as Arabic needs them, are matplotlib's business.
"""

from __future__ import annotations

import functools
import io
import math
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .base.checks import check_size, check_type, listed, optional_package, rectangular, type_name
from .engine.autograd import count_uses, root_of, users_first
from .errors import ShapeError
from .ops.visibility import checked_mask
from .tensors.tensor import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Labels = Iterable[Any] | None
# A name or a token is drawn as it is; else "$" would begin a formula, and "$\\x$" is an error.
AS_IT_IS: Any = {"parse_math": False}
CENTERED = AS_IT_IS | {"ha": "center", "va": "center"}
# Okabe and Ito's colours, which readers who confuse red and green can tell apart.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
NOT_FINITE = COLORS[1]
# What no font can draw, such as a tab, is shown as Python writes it. A line may end in a label.
UNSEEN = {i: ascii(chr(i))[1:-1] for i in (*range(32), *range(0xD800, 0xE000)) if i != ord("\n")}
SMALL = 9.5  # points; a telephone shows a figure of 5 inches with 1 CSS pixel for each point
WIDEST = 10.0  # inches; wider figures become too small on a page


def show_heatmaps(
    matrices: Any,
    xlabel: str = "Keys",
    ylabel: str = "Queries",
    titles: Labels = None,
    xticks: Labels = None,
    yticks: Labels = None,
    mask: Any = None,
    figsize: tuple[float, float] | None = None,
    cmap: str = "Blues",
    vmin: float = 0.0,
    vmax: float = 1.0,
    zlabel: str = "Weight",
) -> Figure:
    """Draw attention weights, one panel for each matrix, all on one colour scale.

    matrices: Tensor or array (rows, columns, Q, K), (n, Q, K) in one row, or (Q, K). So attention
        weights (B, H, Q, K) have a row for each sample and a column for each head.
    titles: one for each column, or one for each panel.
    xticks, yticks: the symbols of keys and queries: a list for all panels, or a list of lists, one
        for each row or each panel. Cells after the end of a list have no symbol.
    mask: True = may attend, in any form of `tinyattn.masks`; invisible cells are hatched in grey.
        Matrices (n, Q, K) are n samples of one head.
    cmap: the colours, by default shades of blue. Those named "RdBu" suit numbers of both signs.
        Readers who confuse red and green can tell the colours of both apart.
    vmin, vmax: the ends of the scale, for matrices that are no weights.
    zlabel: what the colours show.

    Visible cells that are NaN or infinite are orange, so a picture shows where attention broke.

    Returns a matplotlib Figure. Raises ImportError without matplotlib, ShapeError and MaskError for
    arguments that do not fit together, ValueError for visible numbers outside of the scale.

        >>> attention = nn.DotProductAttention()
        >>> x, visible = ta.randn(2, 3, 8), masks.from_valid_lens([2, 3], 3)
        >>> out = attention(x, x, x, mask=visible)
        >>> figure = viz.show_heatmaps(attention.attention_weights, mask=visible, xticks=["a", "b"])

    Source: `show_heatmaps` of the d2l book; there each picture has a scale of its own.
    """
    Figure = figure_class()
    matrices, visible = checked_matrices(matrices, mask)
    rows, columns, queries, keys = matrices.shape
    finite = np.isfinite(matrices)
    shown = np.ma.masked_array(matrices, ~(visible & finite))
    check_scale(shown, vmin, vmax)
    zlabel += " (orange: NaN or infinite)" * bool((visible & ~finite).any())
    panel_titles = by_panel("titles", titles, rows, columns)
    key_labels = tick_labels("xticks", xticks, rows, columns, keys)
    query_labels = tick_labels("yticks", yticks, rows, columns, queries)

    width, height = figsize or size_of_heatmaps(*matrices.shape)
    room = 72 * ((width - 1.0) / columns - 0.6) / keys  # points for the symbol of a key
    figure = Figure(figsize=(width, height), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False)
    for number, panel in enumerate(panels.flat):
        row, column = divmod(number, columns)
        image = panel.imshow(shown[row, column], cmap=cmap, vmin=vmin, vmax=vmax, aspect="auto")
        panel.set_facecolor(NOT_FINITE)  # seen where a visible cell has no number
        hatch(panel, ~visible[row, column])
        set_ticks(panel.xaxis, key_labels[number], room)
        set_ticks(panel.yaxis, query_labels[number])
        panel.set_xlabel(xlabel if row == rows - 1 else "", **AS_IT_IS)
        panel.set_ylabel(ylabel if column == 0 else "", **AS_IT_IS)
        if panel_titles[number] is not None:
            panel.set_title(panel_titles[number], fontsize="medium", **AS_IT_IS)
    figure.align_labels()
    figure.colorbar(image, ax=panels, shrink=0.8, aspect=30).set_label(zlabel, **AS_IT_IS)
    return figure


def check_scale(shown: Any, vmin: float, vmax: float) -> None:
    if shown.count() and not (shown.min() >= vmin and shown.max() <= vmax + 1e-5 * abs(vmax)):
        raise ValueError(
            f"weights lie between {vmin:g} and {vmax:g}, got values from {shown.min():g} to "
            f"{shown.max():g}: pass vmin and vmax for matrices that are no weights"
        )


def size_of_heatmaps(rows: int, columns: int, queries: int, keys: int) -> tuple[float, float]:
    """Inches for panels in which each cell has room for its symbol."""
    cell = 0.26  # enough for a symbol of three letters
    if 1.0 + columns * (cell * keys + 0.6) > WIDEST:
        cell = 0.16  # enough for a symbol that is turned
    width = 1.0 + columns * max(1.7, cell * keys + 0.6)
    return width, 0.5 + rows * max(1.6, 0.26 * queries + 0.5)


def plot_curves(
    curves: Mapping[str, Any],
    xlabel: str = "Step",
    ylabel: str = "Loss",
    smooth: int = 1,
    figsize: tuple[float, float] = (5.0, 3.2),
) -> Figure:
    """Draw one line for each curve, such as losses over the steps of a training.

    curves: name to values, a sequence or Tensor (N,), drawn over 1 to N, or a pair (x, y).
    smooth: draw means of at most this many values, and the values themselves in a pale colour; a
        pair (x, y) is drawn as it is.

    Returns a matplotlib Figure. Raises ImportError without matplotlib, TypeError for another type
    of curves, ShapeError for values that are not (N,), ValueError for smooth < 1.

        >>> figure = viz.plot_curves({"training": [1.0, 0.5, 0.25]})
    """
    Figure = figure_class()
    check_type("plot_curves takes a dict of names to values", curves, Mapping)
    smooth = check_size("smooth", smooth)
    figure = Figure(figsize=figsize, layout="constrained")
    panel, lines = figure.subplots(), []
    for number, (name, curve) in enumerate(curves.items()):
        is_pair = isinstance(curve, tuple) and len(curve) == 2
        x, y = curve if is_pair else (None, curve)
        y = numbers_of(f"the curve {name!r}", y)
        x = np.arange(1, y.size + 1) if x is None else numbers_of(f"the curve {name!r}", x)
        if y.ndim != 1 or x.shape != y.shape or not y.size:
            raise ShapeError(f"the curve {name!r} takes values (N,), got {y.shape} over {x.shape}")
        color, window = COLORS[number % len(COLORS)], 1 if is_pair else min(smooth, 1 + len(y) // 5)
        if window > 1:
            panel.plot(x, y, color=color, alpha=0.25, linewidth=0.8)
            y = np.convolve(y, np.full(window, 1 / window), "valid")
            x = x[window // 2 :][: len(y)]  # each mean is drawn at the middle of its window
        lines += panel.plot(x, y, color=color, label=name)
    panel.set_xlabel(xlabel, **AS_IT_IS)
    panel.set_ylabel(ylabel, **AS_IT_IS)
    panel.grid(alpha=0.3)
    if curves:
        # The names as arguments, because a label of a line is left out if it begins with "_".
        legend = panel.legend(lines, [str(name) for name in curves], frameon=False)
        for text in legend.get_texts():
            text.set(**AS_IT_IS)
    return figure


def plot_gradient_norms(
    stacks: Mapping[str, Sequence[Any]], figsize: tuple[float, float] = (5.0, 3.2)
) -> Figure:
    """Draw the norm of each layer's gradient, one line for each stack of layers, after backward.

        norm = sqrt(sum of grad^2 over all parameters of the layer)

    A line that falls towards the first layer shows gradients that vanish. The scale is logarithmic.

    stacks: name to modules, the first layer first. A parameter without a gradient counts as 0.

    Returns a matplotlib Figure. Raises ImportError without matplotlib, TypeError for another type
    of stacks, ValueError for a layer without any gradient.

        >>> layers = [nn.Linear(4, 4) for i in range(3)]
        >>> nn.Sequential(*layers)(ta.randn(2, 4)).backward(ta.randn(2, 4))
        >>> figure = viz.plot_gradient_norms({"linear": layers})
    """
    such_as = 'such as {"encoder": encoder.layers}'
    check_type(f"plot_gradient_norms takes a dict of names to layers, {such_as}", stacks, Mapping)
    norms: dict[str, list[float]] = {}
    for name, layers in stacks.items():
        norms[name] = []
        for number, layer in enumerate(listed(f"the stack {name!r}", layers), 1):
            parameters = list(layer.parameters())
            grads = [np.asarray(p.grad, np.float64) for p in parameters if p.grad is not None]
            if not grads:
                hint = "call backward first" if parameters else "it has no parameters: leave it out"
                raise ValueError(f"layer {number} of {name!r} has no gradient: {hint}")
            norms[name].append(math.sqrt(sum(np.square(grad).sum() for grad in grads)))
    figure = plot_curves(norms, "Layer", "Gradient norm", figsize=figsize)
    figure.axes[0].set_yscale("log")
    figure.axes[0].locator_params("x", integer=True)
    return figure


def show_shapes(*parts: str | tuple[str, int, int], scale: float = 0.25) -> Figure:
    """Draw a formula of matrices as boxes: as many units high and wide as they have rows, columns.

    parts: (name, rows, columns) for a box, or a text such as "=" between boxes.
    scale: inches for each unit.

    Returns a matplotlib Figure. Raises ImportError without matplotlib.

        >>> figure = viz.show_shapes(("Q", 3, 2), "·", ("Kᵀ", 2, 5), "=", ("scores", 3, 5))
    """
    boxes = [part for part in parts if not isinstance(part, str)]
    for box in boxes:
        if not isinstance(box, (tuple, list)) or len(box) != 3:
            raise TypeError(
                f"show_shapes draws texts and (name, rows, columns), got {type_name(box)}: "
                "print(model) shows the parts of a module"
            )
    gap = 0.4  # inches, for the number of rows and the text before a box
    width = gap * (len(boxes) + len(parts) + 1) / 2 + scale * sum(columns for *_, columns in boxes)
    height = 1.5 * gap + scale * max((rows for _, rows, _ in boxes), default=0)
    panel = (figure := figure_class()(figsize=(width, height))).add_axes((0, 0, 1, 1))
    panel.set(xlim=(0, width), ylim=(-height / 2, height / 2), aspect="equal")
    panel.set_axis_off()
    x = gap
    for part in parts:
        if isinstance(part, str):
            panel.text(x - gap / 4, 0, part, fontsize="x-large", **CENTERED)
            x += gap / 2
            continue
        name, rows, columns = part
        right, half = x + scale * columns, scale * rows / 2
        panel.fill(
            [x, right, right, x], [-half, -half, half, half], facecolor="#cfe2f3", edgecolor="black"
        )
        middle = (x + right) / 2
        panel.text(middle, 0, name, **CENTERED)
        panel.text(middle, -half - 0.06, str(columns), ha="center", va="top", color="0.4")
        panel.text(x - 0.04, 0, str(rows), ha="right", va="center", color="0.4")
        x = right + gap
    return figure


def show_graph(tensor: Tensor, names: Mapping[str, Tensor] | None = None) -> Figure:
    """Draw the recorded graph of a tensor; the op that computed it is at the top.

    An arrow leads from a result to an argument, as gradients flow. A box has the op, the shape of
    its output, and the values that it saves until `backward`. Leaves are green.

    names: what to call tensors of the graph, such as `dict(model.named_parameters())`.

    Returns a matplotlib Figure; up to about 30 boxes can be read. Raises GraphError for a graph
    that was not recorded or has been freed, ValueError for more than 200 boxes.

        >>> x, w = ta.randn(2, 3), ta.randn(3, 4, requires_grad=True)
        >>> figure = viz.show_graph((x @ w).tanh().sum(), {"w": w})
    """
    check_type("show_graph takes a Tensor", tensor, Tensor)
    check_type("names is a dict from names to tensors", names, Mapping | None)
    nodes = list(users_first(count_uses([root_of(tensor)])))
    if len(nodes) > 200:
        raise ValueError(f"show_graph draws at most 200 boxes, and this graph has {len(nodes)}")
    for name, named in (names or {}).items():
        check_type(f"the name {name!r} is of a Tensor", named, Tensor)
        check_type("a name of a tensor is a text", name, str)
    called = {t._node: name for name, t in (names or {}).items()}
    lines = {node: lines_of(node, called.get(node)) for node in nodes}
    width = {node: 0.25 + 0.067 * max(map(letters, lines[node])) for node in nodes}  # in inches
    rows, paths, x = layers_of(nodes, width)
    height = [0.15 * max(len(lines.get(key, "-")) for key in row) + 0.2 for row in rows]
    top = [-sum(height[:i]) - 0.4 * i for i in range(len(rows) + 1)]
    y = {key: top[i] - height[i] / 2 for i, row in enumerate(rows) for key in row}
    left = min(x[key] - width.get(key, 0) / 2 for key in x) - 0.1
    right = max(x[key] + width.get(key, 0) / 2 for key in x) + 0.1

    panel = (figure := figure_class()(figsize=(right - left, -top[-1]))).add_axes((0, 0, 1, 1))
    panel.set(xlim=(left, right), ylim=(top[-1] + 0.2, 0.2))
    panel.set_axis_off()
    text: Any = {"fontsize": 8, "family": "monospace"} | CENTERED
    for node in nodes:
        box = {"boxstyle": "round", "facecolor": "#d9ead3" if node.plan is None else "#cfe2f3"}
        panel.text(x[node], y[node], "\n".join(lines[node]), bbox=box, **text)
    arrow = {"arrowstyle": "->", "color": "gray", "shrinkA": 0, "shrinkB": 0}
    for (start, *between, end), part in paths:
        half = [0.075 * len(lines[node]) + 0.07 for node in (start, end)]
        points = [(x[start] + width[start] * (part - 0.5), y[start] - half[0])]
        points += [(x[key], y[key]) for key in between] + [(x[end], y[end] + half[1])]
        panel.plot(*zip(*points[:-1], strict=True), color="gray", linewidth=1)
        panel.annotate("", points[-1], points[-2], arrowprops=arrow)
    return figure


def lines_of(node: Any, name: str | None) -> list[str]:
    """The text in the box of a node."""
    if node.plan is None:
        return [*(name or "leaf").splitlines(), str(node.shape)]
    lines = [*(f"{name} = {node.name}" if name else node.name).splitlines(), str(node.shape)]
    for saved, value in node.saved_values().items():
        shown = str(getattr(value, "shape", value))
        if value is not None:
            lines.append(f"saves {saved} {shown}" if len(shown) < 20 else f"saves {saved}")
    return lines


def layers_of(nodes: Sequence[Any], width: dict) -> tuple[list[dict], list, dict[Any, float]]:
    """The boxes of each row, the path of each arrow, and how far right each box is.

    An argument is in a row below that of each result. A path has a point in every row between, so
    that an arrow passes beside the boxes there. Boxes move to those that they are joined to.
    """
    depth = dict.fromkeys(nodes, 0)
    for node in nodes:
        for parent in filter(None, node.parents):
            depth[parent] = max(depth[parent], depth[node] + 1)
    rows: list[dict] = [{} for _ in range(max(depth.values()) + 1)]
    rows[0][nodes[0]] = None
    paths, joined = [], defaultdict(list)
    for node in sorted(nodes, key=depth.__getitem__):
        for i, parent in enumerate(node.parents):
            if parent is not None:
                between = [(node, i, row) for row in range(depth[node] + 1, depth[parent])]
                path = [node, *between, parent]
                paths.append((path, (i + 1) / (len(node.parents) + 1)))
                for row, (one, other) in enumerate(pairwise(path), depth[node] + 1):
                    rows[row][other] = None
                    joined[one].append(other)
                    joined[other].append(one)
    x: dict[Any, float] = {}
    for line in rows * 30:
        near = {key: [x[other] for other in joined[key] if other in x] or [0.0] for key in line}
        target = {key: sum(near[key]) / len(near[key]) for key in line}
        end = -np.inf
        for key in sorted(line, key=target.__getitem__):
            half = width.get(key, 0.1) / 2
            x[key] = max(target[key], end + half)
            end = x[key] + half + 0.2
        shift = sum(x[key] - target[key] for key in line) / len(line)
        x.update({key: x[key] - shift for key in line})
    return rows, paths, x


@functools.cache
def figure_class() -> type[Figure]:
    """matplotlib's Figure, imported here because the rest of tinyattn does not need it."""
    needs = "tinyattn.viz needs matplotlib"
    Figure: Any = optional_package("matplotlib.figure", needs, "examples").Figure
    from matplotlib.text import Text

    from .fonts import families_for

    class NotebookFigure(Figure):
        """Notebooks call `_repr_png_`; without it they show figures of pyplot only.

        Lines and bars get COLORS one after the other.
        """

        def add_subplot(self, *args: Any, **options: Any) -> Axes:
            axes = super().add_subplot(*args, **options)
            axes.set_prop_cycle(color=COLORS)
            return axes

        def draw(self, renderer: Any) -> None:
            texts = [text for text in self.findobj(Text) if not text.get_text().isascii()]
            families = families_for(frozenset().union(*map(Text.get_text, texts)))
            for text in texts:
                text.set_fontfamily(list(dict.fromkeys([*text.get_fontfamily(), *families])))
            with warnings.catch_warnings():  # `families_for` warned
                warnings.filterwarnings("ignore", "Glyph .* missing from")
                super().draw(renderer)

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png")
            return buffer.getvalue()

    return NotebookFigure


def checked_matrices(matrices: Any, mask: Any) -> tuple[np.ndarray, np.ndarray]:
    """The matrices, and True for their visible cells, both (rows, columns, Q, K)."""
    weights = numbers_of("show_heatmaps", matrices)
    if weights.ndim not in (2, 3, 4) or not weights.size:
        raise ShapeError(
            "show_heatmaps takes matrices (rows, columns, Q, K), (n, Q, K) or (Q, K) of at least "
            f"one cell, got shape {weights.shape}"
        )
    matrices = weights.reshape((1, 1, 1, *weights.shape)[-4:])
    visible = np.ones(matrices.shape, dtype=bool)
    if mask is not None:
        mask = mask.cpu() if isinstance(mask, Tensor) else mask
        # Matrices (n, Q, K) are n samples of one head, (n, 1, Q, K): a view, which is written to.
        of_samples = visible.swapaxes(0, 1) if weights.ndim == 3 else visible
        of_samples &= checked_mask(mask, of_samples.shape)
    return matrices, visible


def numbers_of(name: str, values: Any) -> np.ndarray:
    """An array or Tensor, or numbers in nested lists, as float64."""
    values = values if hasattr(values, "__array__") else listed(name, values)
    return rectangular(values, name).astype(np.float64)


def by_panel(
    name: str, values: Labels, rows: int, columns: int, is_by_row: bool = False
) -> list[Any]:
    """One of some values for each panel.

    They are one for each panel; or by row one for all or one for each row, else one for each panel
    of the first row.
    """
    number = rows * columns
    if values is None:
        return [None] * number
    values = listed(name, values)
    forms = {columns: values + [None] * (number - columns)}
    if is_by_row:
        forms = {1: values * number, rows: [x for x in values for _ in range(columns)]}
    forms[number] = values
    if len(values) not in forms:
        few = " or ".join(map(str, forms))
        raise ShapeError(f"{name}: {rows} x {columns} panels take {few}, got {len(values)}")
    return forms[len(values)]


def tick_labels(name: str, labels: Labels, rows: int, columns: int, cells: int) -> list[Any]:
    """The labels of each panel, from one list for all, or a list for each row or each panel."""
    if labels is not None:
        labels = [x.tolist() if isinstance(x, Tensor) else x for x in listed(name, labels)]
        is_one_list = all(label is None or np.ndim(label) == 0 for label in labels)
        labels = [labels] if is_one_list else [listed(name, part) for part in labels]
        if (longest := max(map(len, labels), default=0)) > cells:
            raise ShapeError(f"{name}: {cells} cells take at most as many, got {longest}")
    return by_panel(name, labels, rows, columns, is_by_row=True)


def hatch(panel: Axes, invisible: np.ndarray) -> None:
    """Grey hatching over the cells (Q, K) that are invisible."""
    if not invisible.any():
        return
    edges = [np.arange(n + 1) - 0.5 for n in invisible.shape]
    cells = np.ma.masked_array(np.full(invisible.shape, 0.93), ~invisible)
    colors: Any = {"cmap": "gray", "vmin": 0, "vmax": 1, "edgecolor": "0.75", "linewidth": 0}
    panel.pcolor(*reversed(edges), cells, hatch="////", **colors)


def set_ticks(axis: Any, labels: Sequence[str] | None, room: float = math.inf) -> None:
    """The symbols of an axis. A symbol that is longer than `room`, in points, is turned."""
    if labels is None:
        # Only whole numbers, because there is no cell between two cells.
        axis.get_major_locator().set_params(integer=True, min_n_ticks=1)
        return
    shown = ["" if label is None else str(label).translate(UNSEEN) for label in labels]
    longest = max(map(letters, ["", *shown]))
    turned = 90 if longest > 2 and 0.65 * SMALL * longest > room else 0
    axis.set_ticks(range(len(labels)), shown, fontsize=SMALL, rotation=turned, **AS_IT_IS)
    axis.set_tick_params(length=0)


def letters(text: str) -> int:
    """How wide a text is, in Latin letters: a Chinese sign is as wide as two, an accent as none."""
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in text)
    return len(text) + wide - sum(unicodedata.combining(sign) > 0 for sign in text)
