"""The error for an unknown name, and where its text comes from."""

import re
import sys
from typing import Any

# From the name of a package to what hints.py calls it; without "torch_names".
OWNERS = {"tinyattn": "ta", "tinyattn.functional": "F", "tinyattn.nn.functional": "F"}
OF_TORCH_NAMES = (
    "autograd",
    "cuda",
    "nn.utils",
    "nn.utils.rnn",
    "optim.lr_scheduler",
    "utils.data",
)
OWNERS |= {f"tinyattn.{n}": n for n in ("masks", "nn", "nn.init", "optim", *OF_TORCH_NAMES)}


def hints() -> Any:
    """The module with what to write instead, which is imported when the text of an error is read:
    nothing else needs it."""
    from .. import hints

    return hints


def explain_argument(error: TypeError) -> None:
    """Raise the error for an argument that modules of others take, with what to write instead."""
    found = re.search(r"unexpected keyword argument '(\w+)'$", str(error))
    if found and (instead := hints().ARGUMENTS.get(found[1])):
        raise TypeError(f"{error}: {instead}") from None


class UnknownNameError(AttributeError):
    """`space` lacks a name: the text says what to write instead, or which names are close.

    The text is made when it is read, because many errors of this kind are only caught: a library
    asks with hasattr whether a Tensor is an array of its own.
    """

    def __init__(self, owner: str, name: str, space: Any) -> None:
        super().__init__(owner, name)
        self.space = space

    def __str__(self) -> str:
        return hints().explained(*self.args, self.names())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> Any:  # another process gets the names, not the module itself
        return type(self), (*self.args, self.names())

    def names(self) -> list[str]:
        return self.space if isinstance(self.space, list) else dir(self.space)


def offer(module: dict[str, Any], owner: str, names: list[str]) -> None:
    """Let `dir` and `import *` find these names of a module, and make any other name an
    UnknownNameError. Type checkers read the imports of the module instead.

    module: its globals().
    """

    def missing(name: str) -> Any:
        raise UnknownNameError(owner, name, names)

    module.update(__all__=names, __dir__=lambda: names, __getattr__=missing)


def own_names(module: dict[str, Any]) -> list[str]:
    """The names in a module's globals() of what it defines, or a file in its folder."""
    here = module["__name__"]
    return [n for n, x in module.items() if getattr(x, "__module__", "").startswith(here)]


class ImportHints:
    """For `from tinyattn import long` it raises the error that says what to write instead.

    Python asks it when it has found no file. It derives from no class of importlib.abc, because
    importing that module takes as long as a quarter of this package.
    """

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> None:
        package, _, last = name.rpartition(".")
        owner = OWNERS.get(package.replace(".torch_names", ""), "")
        if owner and f"{owner}.{last}" in hints().absent() | hints().added():
            # Python drops this error of an import if it has the name of the module.
            raise ModuleNotFoundError(str(UnknownNameError(owner, last, [])))


sys.meta_path.append(ImportHints)
