"""Public names of modules that lie in a folder: `tinyattn.batches` is `training/batches.py`.

One module has both names, so its classes are the same under either.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .names import UnknownNameError, hints


class ShortNames:
    """Finds a module under its short name; Python asks it when it has found no file.

    For `from tinyattn import long` it raises the error that says what to write instead.

    It has the methods of importlib.abc's MetaPathFinder and Loader, and derives from neither,
    because importing that module takes as long as a quarter of this package.
    """

    def __init__(self, places: Mapping[str, str], owners: Mapping[str, str]) -> None:
        self.places = places  # from the short name to the name of the file
        self.owners = owners  # from the name of a package to what hints.py calls it

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        loader: Any = self
        if name in self.places:
            return ModuleSpec(name, loader)
        package, _, last = name.rpartition(".")
        owner = self.owners.get(package, "")
        if owner and hints().is_known(f"{owner}.{last}"):
            # Python drops this error of an import if it has the name of the module.
            raise ModuleNotFoundError(str(UnknownNameError(owner, last, [])))
        return None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.places[spec.name])
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """The module has run; Python has given it the spec of the short name."""
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def give_short_names(package: str, places: Mapping[str, str]) -> None:
    """Let `import package.name` give the module `package.place` of each (name, place)."""
    moved = {f"{package}.{name}": f"{package}.{place}" for name, place in places.items()}
    owners = {package: "ta", f"{package}.functional": "F"}
    owners |= {f"{package}.{name}": name for name in ("nn", "nn.init", "optim")}
    sys.meta_path.append(ShortNames({n: p for n, p in moved.items() if n != p}, owners))
