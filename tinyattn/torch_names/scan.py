"""Which names of PyTorch a program uses, and which of them are here.

    python -m tinyattn.torch_names.scan [--write] FILE_OR_FOLDER...

prints for each file the import lines to change, and three groups of names: those that work, those
that differ, with the difference, and those that are left out, with what to write. Names whose
difference this program hardly meets have no line of their own: they are named in one line. After
several files it prints what is left out in most of them. --write changes the import lines in the
files themselves. The status is 1 if any name is left out, and 2 if a file cannot be read.

A file is read, not run. Whether a name is here, and takes the arguments of a call, is asked of
tinyattn.torch_names itself. A method is known by its name alone, because nobody knows what x is in
`x.view(2)`; attributes that are not called, as in `x.shape`, are not judged.
"""

import argparse
import ast
import importlib
import inspect
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..base.names import UnknownNameError
from ..engine.rules import OF_SIZES
from ..hints import ARGUMENTS, absent
from ..nn.module import Module
from ..tensors.tensor import Tensor
from .dtypes import OfDtype
from .marks import other_names
from .optim import Optimizer
from .optim.lr_scheduler import LRScheduler
from .optim.optimizer import REFUSED

HERE = "tinyattn.torch_names"
# From the beginning of a name to the place that has it here.
PLACES = {"einops.layers.torch": f"{HERE}.einops_backend", "torch": HERE}
# Packages that need PyTorch, beside those whose names begin with "torch".
NEED_PYTORCH = {"apex", "fairscale", "fairseq", "flash_attn", "lightning", "pytorch_lightning"}
NEED_PYTORCH |= {"pytorch_metric_learning", "timm", "triton", "xformers"}
OWNERS: tuple[Any, ...] = (Tensor, Module, Optimizer, LRScheduler)
# Further methods of PyTorch's tensors and modules, which no type of Python and NumPy has, beside
# those that a hint is about.
METHODS = """
    absolute acos acosh addbmm addmv addr aminmax as_strided asin asinh atan atan2 atanh bitwise_and
    bitwise_not bitwise_or bitwise_xor cosh cross cummax cummin det diag_embed digamma dist
    element_size erfc erfinv exp2 fix fliplr flipud fmax fmin fmod frac ger greater_equal histc
    hypot inverse is_complex is_nonzero kron kthvalue less less_equal lgamma logaddexp logcumsumexp
    logdet logical_xor logit masked_scatter matrix_exp moveaxis multiply nan_to_num nanmean nansum
    ndimension negative new not_equal prelu quantile register_backward_hook
    register_forward_pre_hook register_full_backward_hook renorm rot90 scatter_reduce sgn
    share_memory sinh slogdet stft storage storage_offset subtract svd swapdims take_along_dim tan
    tensor_split to_dense to_empty to_sparse unique_consecutive vdot xlogy
""".split()  # noqa: SIM905
METHODS += [n[7:] for n in absent() if n.startswith("Tensor.")]
# What programs do without here, by the beginning of a name, and what to write or to delete. Further
# names stand in hints.py.
DELETE = {
    "torch.Size.numel": "write x.numel()",
    "torch.bfloat16": "write torch.float32: NumPy has no bfloat16",
    "torch.distributed": "delete it, or write tinyattn.training.distributed",
    "torch.dtype.is_floating_point": "write x.is_floating_point()",
    "torch.nn.modules": "import it from torch.nn",
    "torch.nn.parallel": "write the module itself, or that of tinyattn.training.distributed",
    "torch.profiler": "delete it; python -m cProfile shows where the time goes",
    "torch.utils.checkpoint": "call the function itself: its results are kept all the same",
    "torch.utils.data.distributed": "write Subset(dataset, range(rank, len(dataset), ranks))",
    "torch.utils.tensorboard": "delete it, and print the numbers",
}
# The differences that a program which runs with PyTorch can meet: with how many first arguments a
# call means the same, and the names of arguments that do not. All others are hardly met: something
# may be left out, or a number that its dtype cannot hold is an error.
MET: dict[str, tuple[int, tuple[str, ...]]] = {
    "torch.distributed.all_reduce": (-1, ()),
    "torch.from_numpy": (-1, ()),
    "torch.nn.functional.cross_entropy": (3, ()),
    "torch.nn.functional.kl_div": (2, ()),
    "torch.nn.functional.nll_loss": (3, ()),
    "torch.nn.functional.normalize": (1, ("p",)),
    "torch.nn.functional.pad": (2, ("mode",)),
    "torch.norm": (1, ("p",)),
    "torch.save": (-1, ()),
    "torch.set_default_dtype": (-1, ()),
    "x.norm": (0, ("p",)),
    "x.numpy": (-1, ()),
}
# Arguments that are taken with one value alone: of classes, and of pooling.
ONE_VALUE: dict[str | None, Any] = {"max_norm": None, "padding_mode": "zeros"}
ONE_VALUE |= dict.fromkeys([*REFUSED, "scale_grad_by_freq", "add_bias_kv", "add_zero_attn"], False)
POOLING = {"ceil_mode": False, "return_indices": False, "count_include_pad": True}
DEEPEST = 100_000  # calls within calls, because each `+` of a long sum is a node in another
# From a last part, as in x.shape.numel() and x.dtype.is_floating_point, to the class in DELETE.
CLASS_OF = {"shape": "Size", "size": "Size", "Size": "Size", "dtype": "dtype"}
NO_ATTRIBUTE = "a Tensor takes no attributes of a program: keep them in a dict, by id(x)"
PYTHONS = {name for kind in (str, bytes, list, dict, set, int, float) for name in dir(kind)}


def translated(name: str) -> str:
    """The name here of a module or name of PyTorch; "" for what is not PyTorch's."""
    starts = [start for start in PLACES if f"{name}.".startswith(f"{start}.")]
    return PLACES[starts[0]] + name[len(starts[0]) :] if starts else ""


def looked_up(name: str) -> tuple[Any, str, str]:
    """What a name of PyTorch stands for here; the name, or its part that is missing; and why."""
    start = next(start for start in PLACES if f"{name}.".startswith(f"{start}."))
    try:
        found = importlib.import_module(PLACES[start])
        for part in name[len(start) :].split(".")[1:]:
            start += f".{part}"
            found = getattr(found, part)
    except (AttributeError, ImportError) as error:
        return None, start, instead(name) or reason(error)
    return found, name, ""


def instead(name: str) -> str:
    """What DELETE says of a name, or ""."""
    return next((DELETE[part] for part in DELETE if f"{name}.".startswith(f"{part}.")), "")


def reason(error: Exception) -> str:
    """What to write, from the text of an error."""
    return str(error).partition(": ")[2] or "it is not here: write it with functions that are"


def difference(found: Any) -> str:
    """What the docstring says to differ from PyTorch."""
    for paragraph in re.split(r"\n\s*\n|>>>|Source:", getattr(found, "__doc__", None) or ""):
        text = " ".join(paragraph.split())
        if (start := text.find("Differs from PyTorch")) >= 0:
            return re.sub("^Differs from PyTorch[^:,]*: ", "", text[start:])
    return ""


def is_met(name: str, found: Any, call: ast.Call | None) -> bool:
    """Whether a program that uses a name so can meet its difference."""
    if isinstance(found, OfDtype) and call is not None:  # a list, or numbers, are no shape
        return len(call.args) == 1 and not isinstance(call.args[0], (ast.List, ast.Constant))
    if call is None or name not in MET:
        return name in MET
    same, others = MET[name]
    hidden = any(isinstance(arg, ast.Starred) for arg in call.args)
    named = {keyword.arg for keyword in call.keywords}
    return hidden or len(call.args) > same or bool(named & {None, *others})


def refused(function: Any, call: ast.Call, is_method: bool = False) -> str:
    """Why the function does not take the arguments of a call, "" if it does or nobody knows.

    A method may be another one of the same name: only the names of its arguments are compared.
    """
    named: dict[str, Any] = {k.arg: k.value for k in call.keywords if k.arg}
    hidden = len(named) < len(call.keywords) or any(isinstance(a, ast.Starred) for a in call.args)
    try:
        # An op has **numpy_names for editors, and takes no other name than those in `others`.
        parameters = inspect.signature(function).parameters
        given = named | dict(zip(parameters, () if hidden else call.args, strict=False))
        single = POOLING | (ONE_VALUE if isinstance(function, type) else {})
        for name, value in given.items():
            only = single.get(name, value)
            if only is not value and isinstance(value, ast.Constant) and value.value != only:
                return f"{name} is {only!r} here: {REFUSED.get(name, 'no other value is taken')}"
        signature = inspect.Signature([p for n, p in parameters.items() if n != "numpy_names"])
        # An argument of several names has one of them in the signature.
        others = other_names(function)
        known = {ours: theirs for theirs, ours in others.items() if theirs in parameters}
        known |= {n: known.get(o, o) for n, o in others.items() if n not in parameters}
        named = {known.get(name, name): value for name, value in named.items()}
        # What only a decorator takes, as generator= or non_blocking=.
        while hasattr(function, "__wrapped__"):
            taken = inspect.signature(function, follow_wrapped=False).parameters
            named = {n: v for n, v in named.items() if n in parameters or n not in taken}
            function = function.__wrapped__
        singles = {n for n, p in parameters.items() if p.kind is not p.VAR_POSITIONAL}
        if len(singles) < len(parameters):
            named = {n: v for n, v in named.items() if n in singles or n not in OF_SIZES}
        args = [None] * is_method if is_method or hidden else call.args
        (signature.bind_partial if is_method or hidden else signature.bind)(*args, **named)
    except TypeError as error:
        instead = [ARGUMENTS[name] for name in named if name in ARGUMENTS]
        return ": ".join([str(error), *instead[:1]])
    except ValueError:  # a function of C without a signature
        pass
    return ""


class Scan(ast.NodeVisitor):
    """The names of PyTorch in a program: each of `groups` has lines for each (name, text)."""

    def __init__(self, program: str) -> None:
        self.groups: dict[str, dict[tuple[str, str], list[int]]] = {}
        # Import statements, what they become, and whether that is here.
        self.changes: list[tuple[ast.stmt, str, bool]] = []
        self.names: dict[str, str] = {}  # what stands for a name of PyTorch
        self.others: set[str] = set()  # other imported names
        nodes = list(ast.walk(tree := ast.parse(program)))
        # Methods and modules of the program itself have the names that it gives them.
        self.defined = {getattr(n, "name", "") for n in nodes if not isinstance(n, ast.alias)}
        self.defined |= {n.attr for n in nodes if isinstance(n, ast.Attribute) and is_stored(n)}
        self.parameters = {name for node in nodes for name in loop_variables(node)}
        for node in nodes:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self.read_import(node)
        self.imports = changed_lines(program, [change for change in self.changes if change[2]])
        self.visit(tree)

    def note(self, group: str, name: str, text: str, line: int) -> None:
        self.groups.setdefault(group, {}).setdefault((name, text), []).append(line)

    def read_import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Note what the names of a statement stand for, and how it has to be changed.

        One that is not here is changed too, because PyTorch itself must not be imported.
        """
        module, kept, statements = getattr(node, "module", None) or "", [], []
        is_relative, all_here = bool(getattr(node, "level", 0)), True
        for alias in node.names:
            name = f"{module}.{alias.name}" if module else alias.name
            root = name.partition(".")[0]
            short = alias.asname or (alias.name if module else root)
            known = name if module or alias.asname else root
            if is_relative or not translated(known):
                self.others.add(short)
                if not is_relative and (root in NEED_PYTORCH or root.startswith("torch")):
                    self.note("left out", root, "a package that needs PyTorch", node.lineno)
                elif not is_relative and translated(name):
                    self.note("left out", name, f"write from {name} import", node.lineno)
                kept.append(alias)
                continue
            is_here = self.use(module or name, node.lineno, as_module=True) is not None
            if module and is_here and alias.name != "*":
                self.use(name, node.lineno)
            if alias.name != "*":
                self.names[short] = known
            all_here = all_here and is_here
            statements.append(f"import {translated(known)} as {short}")
        if module and statements:
            names = ast.unparse(node).partition(" import")[2]
            statements = [f"from {translated(module)} import{names}"]
        elif statements and kept:
            statements.insert(0, ast.unparse(ast.Import(kept)))
        if statements:
            self.changes.append((node, "; ".join(statements), all_here))

    def use(
        self, name: str, line: int, as_module: bool = False, call: ast.Call | None = None
    ) -> Any:
        """Put a name of PyTorch into its group. Returns what it stands for, or None."""
        found, known, missing = looked_up(name)
        if as_module and not missing and translated(name) not in sys.modules:
            found, missing = None, instead(name) or "it is no module here"
        if missing:
            self.note("left out", known, missing, line)
        else:
            self.note_difference(known, found, line, call)
        return found

    def note_difference(self, name: str, found: Any, line: int, call: ast.Call | None) -> None:
        differs = difference(found)
        met = "differs" if is_met(name, found, call) else "differs a little"
        self.note(met if differs else "works", name, differs, line)

    def name_of(self, node: ast.AST) -> tuple[str, str]:
        """An expression a.b.c as the name of PyTorch that it is, or ""; and a."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        first = node.id if isinstance(node, ast.Name) else ""
        start = self.names.get(first, "")
        return start and ".".join([start, *reversed(parts)]), first

    def visit_Name(self, node: Any) -> None:
        name, first = self.name_of(node)
        if is_stored(node) and isinstance(node, ast.Name):
            self.names.pop(first, None)
        elif name and is_stored(node):  # of a module, as torch.backends.cudnn.benchmark
            self.visit(node.value)
        elif is_stored(node) and self.has_tensor(node) and not hasattr(Tensor, node.attr):
            self.note("left out", f"x.{node.attr}", NO_ATTRIBUTE, node.lineno)
        elif name:
            self.use(name, node.lineno)
        elif isinstance(node, ast.Attribute):
            of = getattr(node.value, "func", node.value)
            known = f"torch.{CLASS_OF.get(getattr(of, 'attr', ''))}.{node.attr}"
            if known in DELETE:
                self.note("left out", known, DELETE[known], node.lineno)
            self.visit(node.value)

    visit_Attribute = visit_Name  # noqa: N815

    def has_tensor(self, node: ast.Attribute) -> bool:
        """Whether x of `x.name = value` is a Tensor: `for x in model.parameters()`,
        `layer.weight`, or with a name that is nearly requires_grad."""
        x = node.value
        is_one = isinstance(x, ast.Name) and x.id in self.parameters
        is_one |= isinstance(x, ast.Attribute) and x.attr in ("weight", "bias")
        return is_one or bool(get_close_matches(node.attr, ["requires_grad"], cutoff=0.9))

    def visit_Assign(self, node: ast.Assign) -> None:
        before, name = dict(self.names), self.name_of(node.value)[0]
        for part in (node.value, *node.targets):  # in the order in which they are computed
            self.visit(part)
        if name:  # `nn = torch.nn`
            self.names |= {x.id: name for x in node.targets if isinstance(x, ast.Name)}
        elif getattr(node.value, "value", node) is None:  # `torch = None`, where it is missing
            self.names = before

    def visit_Call(self, node: ast.Call) -> None:
        name, first = self.name_of(node.func)
        if name:
            found = self.use(name, node.lineno, call=node)
            if found is not None and (why := refused(found, node)):
                self.note("left out", f"{name}()", why, node.lineno)
        else:
            if isinstance(node.func, ast.Attribute) and first not in self.others:
                self.use_method(node.func.attr, node)
            self.visit(node.func)
        for part in (*node.args, *node.keywords):
            self.visit(part)

    def use_method(self, name: str, call: ast.Call) -> None:
        methods = [m for m in (getattr(owner, name, None) for owner in OWNERS) if callable(m)]
        if name in self.defined or name.startswith("_"):
            return
        if methods:
            why = [refused(method, call, is_method=True) for method in methods]
            self.note_difference(f"x.{name}", getattr(Tensor, name, None), call.lineno, call)
            if all(why) and name not in PYTHONS:
                self.note("left out", f"x.{name}()", why[0], call.lineno)
        elif name in METHODS or name.endswith("_"):
            text = reason(UnknownNameError("Tensor", name, dir(Tensor)))
            self.note("left out", f"x.{name}", text, call.lineno)
        elif name not in PYTHONS:
            self.note("not known", name, "", call.lineno)

    def visit_FunctionDef(self, node: Any) -> None:
        # What a class sets is no variable of its methods.
        nodes = [] if isinstance(node, ast.ClassDef) else [*ast.walk(node)]
        own = {n.id for n in nodes if isinstance(n, ast.Name) and is_stored(n)}
        own |= {argument.arg for argument in nodes if isinstance(argument, ast.arg)}
        body = node.body if isinstance(node.body, list) else [node.body]
        # Decorators, defaults and annotations belong to the outside.
        for part in (part for part in ast.iter_child_nodes(node) if part not in body):
            self.visit(part)
        before = self.names
        self.names = {name: known for name, known in before.items() if name not in own}
        for part in body:
            self.visit(part)
        self.names = before

    visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = visit_FunctionDef  # noqa: N815


def loop_variables(node: ast.AST) -> Iterator[str]:
    """The names that stand for a parameter in `for name, p in model.named_parameters()`."""
    if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
        method = getattr(node.iter.func, "attr", "")
        last = node.target.elts[-1] if isinstance(node.target, ast.Tuple) else node.target
        if method in ("parameters", "named_parameters") and isinstance(last, ast.Name):
            yield last.id


def is_stored(node: Any) -> bool:
    return isinstance(node.ctx, ast.Store)


def changed_lines(program: str, changes: list[Any]) -> list[tuple[int, int, str]]:
    """(first, last, text) of the lines of each import statement: one line that takes their place,
    with what stands before and after the statement."""
    lines = program.split("\n")
    lasts: dict[int, int] = {}
    # The last first, so that the places of the others stay as they are.
    for node, text, _ in sorted(changes, key=lambda c: (-c[0].lineno, -c[0].col_offset)):
        first, last = node.lineno, node.end_lineno or node.lineno
        before = lines[first - 1].encode()[: node.col_offset].decode()
        after = lines[last - 1].encode()[node.end_col_offset :].decode()
        lines[first - 1] = before + text + after
        lasts[first] = max(last, lasts.get(first, last))
    return [(first, last, lines[first - 1]) for first, last in sorted(lasts.items())]


def report(scan: Scan) -> Iterator[str]:
    """What is printed of one program."""
    if scan.imports:
        yield "  imports to change:"
    for first, last, text in scan.imports:
        place = f"line {first}" if first == last else f"lines {first}-{last}"
        yield f"    {place}: {text.strip()}"
    yield f"  works: {len(scan.groups.get('works', {}))} names"
    for group in ("differs", "left out"):
        rows = scan.groups.get(group, {})
        yield f"  {group}: {len(rows)} names"
        for (name, text), lines in sorted(rows.items()):
            yield f"    {name} (line {', '.join(map(str, sorted(set(lines))))}): {text}"
    if little := {name for name, _ in scan.groups.get("differs a little", {})}:
        yield f'  also under "What differs" in docs/from_pytorch.md: {", ".join(sorted(little))}'
    if unknown := scan.groups.get("not known"):
        yield f"  not judged: the methods {', '.join(sorted(name for name, _ in unknown))}"


def rewritten(program: str) -> str:
    """The program with the import lines that `report` prints. All others stay where they are."""
    lines = program.split("\n")
    for first, last, text in changed_lines(program, Scan(program).changes):
        lines[first - 1 : last] = [text, *[""] * (last - first)]
    return "\n".join(lines)


def scanned(path: Path, write: bool) -> Scan | None:
    """Print what a file uses, and change its imports if asked to. None if it cannot be read."""
    print(path)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, DEEPEST))
    try:
        if path.suffix == ".ipynb":
            raise ValueError("it is a notebook: `jupyter nbconvert --to script` makes a .py")
        with tokenize.open(path) as file:
            text, encoding, newlines = file.read(), file.encoding, file.newlines
        scan = Scan(text)
        print(*report(scan), sep="\n")
        if write and scan.changes:
            newline = "\r\n" if "\r\n" in (newlines or "") else "\n"
            path.write_text(rewritten(text), encoding, newline=newline)
        return scan
    except (OSError, SyntaxError, ValueError) as error:
        print(f"  cannot be read: {error}")
    except (RecursionError, MemoryError):
        print("  cannot be read: it is nested too deeply")
    finally:
        sys.setrecursionlimit(limit)
    return None


def main(paths: list[str], write: bool = False) -> int:
    """Print what the files use, and those of folders. Returns the status."""
    files = [f for p in map(Path, paths) for f in (sorted(p.rglob("*.py")) if p.is_dir() else [p])]
    read = [scan for path in files if (scan := scanned(path, write))]
    left_out = [{name for name, _ in scan.groups.get("left out", {})} for scan in read]
    if len(files) > 1:
        print(f"{len(files)} files: nothing is left out of {left_out.count(set())}")
        for name, count in Counter(name for names in left_out for name in names).most_common(20):
            print(f"  {name} is left out of {count}")
    return 2 if len(read) < len(files) else 1 if any(left_out) else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog=f"python -m {HERE}.scan", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--write", action="store_true", help="change the import lines in the files")
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a program, or a folder of them")
    if isinstance(sys.stdout, io.TextIOWrapper):
        # It may be in cp1252: a sign that this has not becomes an escape.
        sys.stdout.reconfigure(errors="backslashreplace")
    given = parser.parse_args()
    sys.exit(main(given.paths, given.write))
