"""Arrays within arrays, and zeros in them, for what runs compiled.

Slices, `reshape`, `view` and assignments to slices would do the same, but each of them becomes some
three hundred instructions before LLVM throws most of them away, a sixth of all that there was to
compile. These become twenty to fifty. Their arrays are in C order, and none looks whether it stays
inside its array.
"""

from __future__ import annotations

import math
from itertools import accumulate

from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from .compiler import COMPILED, inner

if COMPILED:

    def product(builder, numbers):
        found = numbers[0]
        for number in numbers[1:]:
            found = builder.mul(found, number)
        return found

    def strides_of(builder, itemsize, lengths):
        """Of an array in C order."""
        strides = [itemsize]
        for length in reversed(lengths[1:]):
            strides.insert(0, builder.mul(length, strides[0]))
        return strides

    def taken_apart(context, builder, signature, arguments):
        """The first argument, an array, in its parts: data, shape, strides."""
        return context.make_array(signature.args[0])(context, builder, arguments[0])

    def in_order(x):
        """The type of x if it is in C order, as all arrays here have to be."""
        if x.layout != "C":
            raise TypingError(f"an array in C order was expected, not {x}")
        return x

    def array_of(context, builder, kind, source, data, lengths, strides=None):
        """An array of the type `kind` that begins at `data`, in the memory of `source`."""
        itemsize = context.get_constant(types.intp, kind.dtype.bitwidth // 8)
        out = context.make_array(kind)(context, builder)
        populate_array(
            out, data=data, shape=lengths, itemsize=itemsize, meminfo=source.meminfo,
            parent=source.parent, strides=strides or strides_of(builder, itemsize, lengths),
        )  # fmt: skip
        return out._getvalue()

    def shapes_of(kinds):
        return types.Tuple([types.UniTuple(types.intp, len(kind)) for kind in kinds])

    @intrinsic
    def array_at(typing, flat, start, shape):
        """The numbers of `flat` from `start` on as an array of this shape; if `flat` is read-only,
        one that Numba does not know as such, see `as_writeable`."""
        array = types.Array(flat.dtype, len(shape), "C")

        def code(context, builder, signature, arguments):
            source = taken_apart(context, builder, signature, arguments)
            lengths = cgutils.unpack_tuple(builder, arguments[2])
            data = builder.gep(source.data, [arguments[1]])
            out = array_of(context, builder, array, source, data, lengths)
            return impl_ret_borrowed(context, builder, array, out)

        return array(in_order(flat), types.intp, types.UniTuple(types.intp, len(shape))), code

    @intrinsic
    def arrays_in(typing, flat, shapes):
        """The numbers of `flat` as arrays of these shapes, one after another."""
        arrays = types.Tuple([types.Array(flat.dtype, len(shape), "C") for shape in shapes])

        def code(context, builder, signature, arguments):
            source = taken_apart(context, builder, signature, arguments)
            data, found = source.data, []
            shapes = cgutils.unpack_tuple(builder, arguments[1])
            for kind, shape in zip(arrays, shapes, strict=True):
                lengths = cgutils.unpack_tuple(builder, shape)
                found.append(array_of(context, builder, kind, source, data, lengths))
                data = builder.gep(data, [product(builder, lengths)])
            out = context.make_tuple(builder, arrays, found)
            return impl_ret_borrowed(context, builder, arrays, out)

        return arrays(in_order(flat), shapes_of(shapes)), code

    @intrinsic
    def size_of(typing, shapes):
        """How many numbers arrays of these shapes have together."""

        def code(context, builder, signature, arguments):
            total = context.get_constant(types.intp, 0)
            for shape in cgutils.unpack_tuple(builder, arguments[0]):
                total = builder.add(total, product(builder, cgutils.unpack_tuple(builder, shape)))
            return total

        return types.intp(shapes_of(shapes)), code

    @intrinsic
    def viewed_as(typing, flat, dtype):
        """The bytes of a one-dimensional array as numbers of another type."""
        array = types.Array(dtype.dtype, 1, "C")

        def code(context, builder, signature, arguments):
            source = taken_apart(context, builder, signature, arguments)
            data = builder.bitcast(source.data, context.get_data_type(array.dtype).as_pointer())
            size = builder.mul(source.nitems, source.itemsize)
            count = builder.udiv(size, context.get_constant(types.intp, array.dtype.bitwidth // 8))
            out = array_of(context, builder, array, source, data, [count])
            return impl_ret_borrowed(context, builder, array, out)

        return array(in_order(flat), dtype), code

    @intrinsic
    def as_writeable(typing, x):
        """A read-only array as one that Numba does not know as such, so that functions of both are
        compiled once; not to be written to all the same."""
        array = types.Array(x.dtype, x.ndim, "C")

        def code(context, builder, signature, arguments):
            return impl_ret_borrowed(context, builder, array, arguments[0])

        return array(in_order(x)), code

    @intrinsic
    def rows_at(typing, x, first, count):
        """x[first : first + count, :], to Numba of one type with its own transpose, so that what
        takes either, like `add_product`, is compiled once."""
        array = types.Array(x.dtype, 2, "A")

        def code(context, builder, signature, arguments):
            source = taken_apart(context, builder, signature, arguments)
            columns = cgutils.unpack_tuple(builder, source.shape)[1]
            strides = cgutils.unpack_tuple(builder, source.strides)
            data = builder.gep(source.data, [builder.mul(arguments[1], columns)])
            lengths = [arguments[2], columns]
            out = array_of(context, builder, array, source, data, lengths, strides)
            return impl_ret_borrowed(context, builder, array, out)

        return array(in_order(x), types.intp, types.intp), code

    @intrinsic
    def clear(typing, x, first, last):
        """x[first:last] = 0."""

        def code(context, builder, signature, arguments):
            array = taken_apart(context, builder, signature, arguments)
            lengths = cgutils.unpack_tuple(builder, array.shape)
            of_row = product(builder, [array.itemsize, *lengths[1:]])
            _, first, last = arguments
            with builder.if_then(builder.icmp_signed("<", first, last)):  # often there is nothing
                data = cgutils.pointer_add(builder, array.data, builder.mul(first, of_row))
                size = builder.mul(builder.sub(last, first), of_row)
                cgutils.memset(builder, data, size, 0)
            return context.get_dummy_value()

        return types.void(in_order(x), types.intp, types.intp), code

else:

    def array_at(flat, start, shape):
        return flat.reshape(-1)[start : start + math.prod(shape)].reshape(shape)

    def arrays_in(flat, shapes):
        starts = accumulate((math.prod(shape) for shape in shapes), initial=0)
        return tuple(array_at(flat, *place) for place in zip(starts, shapes, strict=False))

    def size_of(shapes):
        return sum(math.prod(shape) for shape in shapes)

    def viewed_as(flat, dtype):
        return flat.view(dtype)

    def as_writeable(x):
        return x

    def rows_at(x, first, count):
        return x[first : first + count, :]

    def clear(x, first, last):
        x[first:last] = 0


@inner
def doubles(count):
    """How many float64 take as much memory as so many float32, or more."""
    return (count + 1) // 2
