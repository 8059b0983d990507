"""The figures of docs/reliability.md, counted and measured anew.

python tests/figures.py            counts, and the last full run of mutation.py
python tests/figures.py --errors   also the largest errors beside PyTorch's (a minute)
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent / "gradients"))
sys.path.insert(0, str(Path(__file__).parent / "planted"))

import op_table
import rows as called
import test_every_op
import test_op_table as generated
from op_table import ROWS, OpRow, samples_of
from planted_faults import all_faults

# The first row of each family, in the order of the table.
FAMILIES = {
    "add": "arithmetic",
    "neg": "one element at a time",
    "sum": "sums and extremes",
    "softmax": "softmax and losses",
    "linear": "layers and attention",
    "reshape": "shapes",
    "eq": "without a derivative",
}
MEASURED = ("arithmetic", "one element at a time", "sums and extremes", "softmax and losses",
            "layers and attention")  # fmt: skip


def families() -> dict[str, list[OpRow]]:
    found: dict[str, list[OpRow]] = {}
    family = ""
    for row in ROWS:
        family = FAMILIES.get(row.name, family)
        found.setdefault(family, []).append(row)
    return found


def generated_cases() -> tuple[int, int]:
    """How many tests the table generates, and how many pairs of a property and a sample."""
    tests = cases = 0
    for name, function in {**vars(generated), **vars(test_every_op)}.items():
        if not name.startswith("test_"):
            continue
        rows, times = [], 1
        for mark in getattr(function, "pytestmark", []):
            if mark.name == "deep":
                times = 0
            elif mark.name == "parametrize" and mark.args[0] == "row":
                rows = mark.args[1]
            elif mark.name == "parametrize":
                times *= len(mark.args[1])
        tests += len(rows) * times
        source = inspect.getsource(function)
        if "each_sample(" in source or "asked(" in source:
            cases += sum(len(samples_of(row)) for row in rows) * times
    return tests, cases


def print_counts() -> None:
    tests, cases = generated_cases()
    reasons = [row.torch for row in ROWS if not callable(row.torch)]
    print(f"rows                  {len(ROWS)}")
    print(f"  with a derivative   {sum(bool(row.differentiable) for row in ROWS)}")
    print(f"  not compared with PyTorch   {len(reasons)}: {'; '.join(sorted(set(reasons)))}")
    print(f"samples               {sum(len(samples_of(row)) for row in ROWS)}")
    edges = sum(bool(sample.edge) for row in ROWS for sample in samples_of(row))
    print(f"  edge cases          {edges}")
    print(f"calls that must fail  {sum(len(row.errors) for row in ROWS)}")
    print(f"generated tests       {tests}, over {cases} pairs of a property and a sample")
    public, excluded = len(generated.public_callables()), len(op_table.EXCLUDED)
    print(f"public callables      {public}, {excluded} of them with a reason for no row")


def print_mutation() -> None:
    path = Path(__file__).parent / "planted" / "mutation.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    share = result["noticed"] / result["faults"]
    print(
        f"planted faults        {len(all_faults())}; of the {result['faults']} of {result['date']}"
        f" {result['noticed']} were noticed ({share:.1%}); again: python tests/planted/mutation.py"
    )
    for name in result["survivors"]:
        print(f"  survived: {name}")


def results(row: OpRow, sample: Any, torch: Any) -> tuple[int, list, list, list]:
    """Number of outputs; then values and gradients: ours, PyTorch's, those of the reference."""
    tensors = called.tensors_of(row, sample)
    outputs = called.call(row.function, tensors, sample)
    cotangents = called.cotangents_for(row, outputs)
    ours = [out.numpy() for out in outputs]
    ours += called.gradients(outputs, tensors, cotangents)
    theirs = called.torch_results(torch, row, sample, cotangents)
    wide = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in sample.inputs]
    exact = list(generated.reference_outputs(row, wide, sample))
    exact += generated.reference_gradients(row, sample, cotangents)
    return len(outputs), ours, theirs, exact


def error(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in roundings of the largest number there, or of 1 if that is larger."""
    if not exact.size:
        return 0.0
    with np.errstate(invalid="ignore"):
        errors = np.where(found == exact, 0, np.abs(found - exact))
    finite = np.abs(exact[np.isfinite(exact)])
    unit = np.finfo(found.dtype).eps * finite.max(initial=1.0)
    return float(np.nanmax(errors) / unit)


def largest_errors(rows: list[OpRow], dtype: str, torch: Any) -> np.ndarray:
    """Values (ours, PyTorch's), gradients (ours, PyTorch's)."""
    largest = np.zeros((2, 2))
    for row in rows:
        if not row.differentiable or not callable(row.torch) or row.dtype != "same":
            continue
        for sample in samples_of(row, dtype):
            if sample.torch:
                continue
            count, *found = results(row, sample, torch)
            for i, (x, y, right) in enumerate(zip(*found, strict=True)):
                for j, result in enumerate((x, y)):
                    place = (int(i >= count), j)
                    largest[place] = max(largest[place], error(result, right))
    return largest


def print_errors() -> None:
    import torch

    print("\nLargest errors in roundings (of 2^-23, 2^-52), tinyattn / PyTorch")
    print("| family | float32 values | gradients | float64 values | gradients |")
    print("| --- | --- | --- | --- | --- |")
    for family, rows in families().items():
        if family not in MEASURED:
            continue
        cells = []
        for dtype in ("float32", "float64"):
            for ours, theirs in largest_errors(rows, dtype, torch):
                cells.append(f"{ours:.3g} / {theirs:.3g}")
        print(f"| {family} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--errors", action="store_true", help="measure errors beside PyTorch's")
    options = parser.parse_args()
    print_counts()
    print_mutation()
    if options.errors:
        if find_spec("torch") is None:
            raise SystemExit("--errors compares with PyTorch: pip install torch==2.13.0")
        print_errors()


if __name__ == "__main__":
    main()
