"""The innermost loop of sums of rows, written out in vectors, and asking for memory before its turn.

Compilers do not keep an array in registers. And a pass over a long array waits for memory about half of its time where
what is far ahead is not asked for, or where memory that is only written to is read first. For
`hushgraph.graph.kernels`.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LINE = 64
"""Bytes that memory reads or writes at once."""
_LANES = 16  # columns of a vector: a register where there are such wide ones, otherwise two or four
_SOON = 1 << 12  # bytes to what is asked for: memory takes as long as some hundred edges do
_I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _number(value: int) -> ir.Constant:
    return ir.Constant(_I64, value)


@intrinsic
def fetch_ahead(typing, array, index):  # type: ignore[no-untyped-def]
    """Ask for what stands a page behind `array[index]`, in a flat array; it may be beyond the end."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        parts = context.make_array(array)(context, builder, values[0])
        step = parts.itemsize if array.layout == "C" else builder.extract_value(parts.strides, 0)
        place = builder.add(builder.ptrtoint(parts.data, _I64), builder.mul(values[1], step))
        _emit_fetch(builder, builder.add(place, _number(_SOON)))
        return context.get_dummy_value()

    return types.void(array, types.uintp), code


@intrinsic
def fetch(typing, array, index):  # type: ignore[no-untyped-def]
    """Ask for what stands at `array[index]`, in a flat array."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        parts = context.make_array(array)(context, builder, values[0])
        offset = builder.mul(values[1], parts.itemsize)
        _emit_fetch(builder, builder.add(builder.ptrtoint(parts.data, _I64), offset))
        return context.get_dummy_value()

    return types.void(array, types.uintp), code


@intrinsic
def store_line(typing, place, line):  # type: ignore[no-untyped-def]
    """Write a line of `LINE` bytes to memory, past the caches. Both are addresses, and multiples of `LINE`."""

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kind = ir.VectorType(_I32, LINE // 4).as_pointer()
        to, content = (builder.inttoptr(address, kind) for address in values)
        stored = builder.store(builder.load(content, align=LINE), to, align=LINE)
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.Constant(_I32, 1)]))
        return context.get_dummy_value()

    return types.void(types.uintp, types.uintp), code


@intrinsic
def add_rows(typing, width, ahead, bits, code_bits, table, codes, sources, begin, end, size, place):  # type: ignore[no-untyped-def]
    """Add the int16 rows of `sources[begin:end]` in 32 bits and write the sum to `place`, in so many `bits`.

    The row of a node has its number in the table; with `code_bits`, the code of the node has.
    """
    known = (width, ahead, bits, code_bits)
    if not all(isinstance(one, types.IntegerLiteral) for one in known):
        return None
    pointer, number = types.uintp, types.intp
    signature = types.void(*known, pointer, pointer, pointer, number, number, number, pointer)

    def code(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        _emit_sum(builder, *(one.literal_value for one in known), *values[4:])
        return context.get_dummy_value()

    return signature, code


def _emit_sum(b: Any, width: int, ahead: int, bits: int, code_bits: int, table: Any, codes: Any, *rest: Any) -> None:
    sources, begin, end, size, place = rest
    lanes = min(width, _LANES)
    short, middle, wide = (ir.VectorType(kind, lanes) for kind in (_I16, _I32, _I64))
    nodes, kind = b.inttoptr(sources, _I32.as_pointer()), ir.IntType(code_bits or 32)

    def node_at(position: Any) -> Any:
        return b.zext(b.load(b.gep(nodes, [position])), _I64)

    def row_of(number: Any) -> Any:
        return b.add(table, b.mul(number, _number(2 * width)))

    def emit_fetch_of(number: Any) -> None:
        if code_bits:
            _emit_fetch(b, b.add(codes, b.mul(number, _number(code_bits // 8))))
        else:
            _emit_fetch(b, row_of(number), 2 * width)

    before, loop, done = b.block, b.append_basic_block("rows"), b.append_basic_block("summed")
    nothing = [ir.Constant(middle, [0] * lanes)] * (width // lanes)
    b.cbranch(b.icmp_signed("<", begin, end), loop, done)
    b.position_at_end(loop)
    position, *partial = (b.phi(one.type) for one in (begin, *nothing))
    _emit_fetch(b, b.add(sources, b.add(b.mul(position, _number(4)), _number(_SOON))))
    if ahead:
        later = b.add(position, _number(ahead))
        emit_fetch_of(node_at(b.select(b.icmp_signed("<", later, size), later, position)))
    number, added = node_at(position), []
    if code_bits:
        number = b.zext(b.load(b.gep(b.inttoptr(codes, kind.as_pointer()), [number])), _I64)
    row = row_of(number)
    for i, sum_ in enumerate(partial):
        part = b.inttoptr(b.add(row, _number(2 * lanes * i)), short.as_pointer())
        added.append(b.add(sum_, b.sext(b.load(part, align=2), middle)))
    following = b.add(position, _number(1))
    for phi, first, later in zip((position, *partial), (begin, *nothing), (following, *added)):
        phi.add_incoming(first, before)
        phi.add_incoming(later, loop)
    b.cbranch(b.icmp_signed("<", following, end), loop, done)
    b.position_at_end(done)
    for i, (none, sum_) in enumerate(zip(nothing, added)):
        result = b.phi(middle)
        result.add_incoming(none, before)
        result.add_incoming(sum_, loop)
        added[i] = result
    for i, sum_ in enumerate(added):
        result = b.sext(sum_, wide) if bits == 64 else sum_
        part = b.add(place, _number(bits // 8 * lanes * i))
        b.store(result, b.inttoptr(part, result.type.as_pointer()), align=bits // 8)


def _emit_fetch(b: Any, address: Any, num_bytes: int = 1) -> None:
    """Ask for the cache lines of some bytes: to read (0), to be kept near (3), data and not code (1)."""
    kind = ir.FunctionType(ir.VoidType(), [_I8.as_pointer(), _I32, _I32, _I32])
    fetch = b.module.declare_intrinsic("llvm.prefetch.p0", (), kind)
    for line in range(0, num_bytes, LINE):
        place = b.inttoptr(b.add(address, _number(line)), _I8.as_pointer())
        b.call(fetch, [place, *(ir.Constant(_I32, value) for value in (0, 3, 1))])
