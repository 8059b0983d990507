"""The second part of Tensor: whether it is recorded, its gradient, and copies of it."""

import copy
import warnings
from typing import Any, Self, SupportsIndex

from ..base.backend import Array
from ..base.checks import check_type, checked_dtype, require_float
from ..engine.autograd import Leaf, Node, TensorBase, backward, wrap
from ..engine.versions import Version, note_view
from ..errors import DtypeError, GraphError, ShapeError
from .values import Values

NO_GRAD = (
    "{} computed this tensor, and backward fills .grad of leaves only: call retain_grad() before "
    "backward(). A weight stays a leaf if it is changed in place under no_grad(): w -= lr * w.grad"
)


class Gradients(Values):
    """The node of a Tensor: requires_grad, grad, backward, detach; copies of leaves."""

    __slots__ = ()
    _copies_grad = True  # into a deep copy, and into a pickled one

    @property
    def requires_grad(self) -> bool:
        """True if operations on this tensor are recorded."""
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value and self._node is None:
            require_float(self.dtype, "a tensor that requires gradients")
            self._node = self._frozen_leaf() or Leaf(self._data)
            self._node.retains_grad = True
        elif not value and self._node is not None:
            if not self.is_leaf:
                raise GraphError("only a leaf can stop requiring gradients; use detach()")
            self._former_leaf, self._node = self._node, None  # a graph may lead to this leaf
            self._former_leaf.retains_grad = False

    def _frozen_leaf(self) -> Leaf | None:
        """The leaf that this tensor had before it stopped requiring gradients, with its gradient;
        None if the tensor has another shape or dtype now."""
        try:  # not by getattr, because Tensor's own error for a name that is missing takes longer
            leaf = object.__getattribute__(self, "_former_leaf")
        except AttributeError:
            return None
        return leaf if (leaf.shape, leaf.dtype) == (self.shape, self.dtype) else None

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Record operations on this leaf from now on, or not; returns it."""
        self.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        """True if no recorded op computed this tensor."""
        return self._node is None or self._node.plan is None

    @property
    def grad_fn(self) -> Node | None:
        """The Node of the recorded op that computed this tensor; None if none did.

        It has `name`, `shape`, `parents`, and `saved_values()`; `viz.show_graph` draws graphs.
        Differs from PyTorch: there parents are `next_functions`, and classes have the names.

            >>> x = ta.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * x).grad_fn.name, (x * 3.0).grad_fn.saved_values()
            ('mul', {'y': 3.0})
        """
        return self._node if isinstance(self._node, Node) else None

    @property
    def grad(self) -> Self | None:
        """The sum of the gradients that calls of `backward` have computed, or None.

        It stays while `requires_grad` is False, and then no backward adds to it. A tensor that an
        op computed has none, and a warning says so, unless `retain_grad` was called.
        Differs from PyTorch: each call makes a new Tensor for the sum, so the one that you have
        keeps its values.
        """
        node = self._node or self._frozen_leaf()
        if isinstance(node, Node) and node.grad is None and not node.retains_grad:
            warnings.warn(NO_GRAD.format(node.name), stacklevel=2)
        return None if node is None else node.grad

    @grad.setter
    def grad(self, value: Values | None) -> None:
        if value is not None:
            check_type("grad must be a Tensor or None", value, Values)
            if value.shape != self.shape:
                raise ShapeError(f"grad must have shape {self.shape}, got {value.shape}")
            if value.dtype != self.dtype:
                raise DtypeError(f"grad must have dtype {self.dtype}, got {value.dtype}")
        node = self._node or self._frozen_leaf()
        if node is not None:
            node.grad = value
        elif value is not None:
            raise GraphError("a tensor that does not require gradients has no grad")

    def retain_grad(self) -> None:
        """Let `backward` fill `.grad` of this tensor too, although an op computed it."""
        if self._node is None:
            raise GraphError("retain_grad: this tensor does not require gradients")
        self._node.retains_grad = True

    def backward(
        self,
        gradient: TensorBase | None = None,
        retain_graph: bool | None = None,
        create_graph: bool = False,
    ) -> None:
        """Add the gradient of this tensor with respect to every leaf to that leaf's `.grad`.

        gradient: the vector of the vector-Jacobian product, in this tensor's shape; 1 by default
            for a tensor of one element.
        retain_graph: do not free the graph; the default is `create_graph`. Ops that save no array,
            such as x + y, are never freed.
        create_graph: record the computation of the gradients, for derivatives of higher order.

        Two threads that call it at once must share no leaf, because one of two sums may be lost.

        Raises GraphError if nothing was recorded, if the graph has been freed, or if `gradient`
        is missing; ShapeError if it has another shape.

            >>> x = ta.tensor([1.0, 2.0], requires_grad=True)
            >>> (x * 3).backward(ta.tensor([1.0, 10.0]))
            >>> x.grad
            tensor([ 3., 30.])

        The sum is a new Tensor, so a gradient that was kept stays as it was. PyTorch changes it.

            >>> kept = x.grad
            >>> (x * 3).sum().backward()
            >>> kept, x.grad
            (tensor([ 3., 30.]), tensor([ 6., 33.]))
        """
        backward(self, gradient, retain_graph, create_graph)

    def detach(self) -> Self:
        """The same values in the same memory, without a graph."""
        twin = wrap(self._data)
        twin._version = self._version
        note_view(twin, self, Gradients.detach, (), {})
        return twin

    # Copies

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """An independent leaf with the same values, and of a Tensor with the same gradient.

        A Parameter's copy has none, as in PyTorch: a program that trains the copy of a model would
        add to the gradient of the model.
        """
        if not self.is_leaf:
            raise GraphError("only leaves can be copied deeply: detach() this tensor first")
        grad = wrap(self.grad._data.copy()) if self.grad is not None and self._copies_grad else None
        memo[id(self)] = twin = self._twin(self._data.copy(), Version(), grad)
        if type(self).__dictoffset__:  # a subclass, whose objects have attributes
            twin.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return twin

    def __copy__(self) -> Self:
        """The same array; but one of two leaves can be frozen, or get gradients, alone."""
        twin = self._twin(self._data, self._version, self.grad if self.is_leaf else None)
        note_view(twin, self, lambda x: x, (), {})
        if type(self).__dictoffset__:
            twin.__dict__.update(self.__dict__)
        return twin

    def _twin(self, array: Array, version: Version | None, grad: Any) -> Self:
        """A tensor with this array and node; of a leaf another leaf, with this gradient."""
        twin = object.__new__(type(self))
        twin._data, twin._version, twin._view = array, version, None
        twin._node = Leaf(array) if isinstance(self._node, Leaf) else self._node
        if grad is not None:
            leaf = twin._node
            if leaf is None:
                leaf = twin._former_leaf = Leaf(array)
            leaf.grad = grad
        return twin

    def __reduce_ex__(self, protocol: SupportsIndex) -> str | tuple[Any, ...]:
        if not self.is_leaf:
            raise GraphError("only leaves can be pickled: detach() this tensor first")
        made: Any = super().__reduce_ex__(protocol)
        del made[2][1]["_view"]  # weak references, and a copy shares no memory
        return made

    def __setstate__(self, state: tuple[dict[str, Any] | None, dict[str, Any]]) -> None:
        for name, value in {**(state[0] or {}), **state[1]}.items():  # attributes, and slots
            object.__setattr__(self, name, value)
            # NumPy unpickles a dtype that equals its own but is another object; `is` would say no.
            if isinstance(value, Leaf):
                value.dtype = checked_dtype(value.dtype)
        self._data = self._data.astype(checked_dtype(self._data.dtype))
        self._version, self._view = Version(), None
        self.grad = self.grad if self._copies_grad else None
