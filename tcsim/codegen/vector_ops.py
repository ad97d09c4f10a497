"""Vectors of LLVM as Python values: what the intrinsics of the fast path are written with.

Everything emitted is generic LLVM (``<16 x float>``, ``fptosi``, ``llvm.umax``), so one source becomes AVX-512, AVX2 or
whatever the target has, with the same bits. Nothing here knows about tensor cores.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, cast

from llvmlite import ir
from numba.core import cgutils

I1, I8, I16, I32, I64 = (ir.IntType(w) for w in (1, 8, 16, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
LANES = 16
NEAREST, TO_ZERO, DOWN = 1, 0, 3  # llvm.set.rounding
UNROLL = 4  # steps of a loop in one turn
LINE = 64  # bytes of a cache line: a vector across two of them loads at half speed


def _letters(kind: ir.Type) -> str:
    if isinstance(kind, ir.VectorType):
        return f"v{kind.count}{_letters(kind.element)}"
    return {F32: "f32", F64: "f64"}.get(kind) or f"i{kind.width}"


_P = ParamSpec("_P")


def lined_up(function: Callable[_P, Emitted]) -> Callable[_P, Emitted]:
    """Let a function of values take an `Abreast` for any of them: it is then called for each member."""

    @wraps(function)
    def call_each(*args: Any, **options: Any) -> Emitted:
        size = next((len(x.members) for x in args if isinstance(x, Abreast)), 0)
        if not size:
            return function(*args, **options)
        rows = [[x.members[i] if isinstance(x, Abreast) else x for x in args] for i in range(size)]
        return Abreast([cast(Any, function)(*row, **options) for row in rows])

    return cast("Callable[_P, Emitted]", call_each)


class Emitted:
    """An LLVM value with operators: arithmetic by its type, integers modulo their width, shifts logical.

    A comparison gives an i1 (or a vector of them). Python numbers take the type of the other operand.
    """

    __slots__ = ("b", "v")

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.b, self.v = builder, value

    @property
    def type(self) -> ir.Type:
        return self.v.type

    @property
    def element(self) -> ir.Type:
        return self.type.element if isinstance(self.type, ir.VectorType) else self.type

    @property
    def _floats(self) -> bool:
        return isinstance(self.element, ir.FloatType | ir.DoubleType)

    @lined_up
    def like(self, other: Emitted | float) -> Emitted:
        """`other` as a value of this type: a constant in every lane, or a scalar spread over the lanes."""
        if not isinstance(other, Emitted):
            return constant(self.b, self.type, other)
        if isinstance(self.type, ir.VectorType) and not isinstance(other.type, ir.VectorType):
            return other.spread(self.type.count)
        return other

    @lined_up
    def _binary(self, other: Emitted | float, floats: str, integers: str) -> Emitted:
        return Emitted(self.b, getattr(self.b, floats if self._floats else integers)(self.v, self.like(other).v))

    def __add__(self, other: Emitted | float) -> Emitted:
        return self._binary(other, "fadd", "add")

    def __sub__(self, other: Emitted | float) -> Emitted:
        return self._binary(other, "fsub", "sub")

    def __mul__(self, other: Emitted | float) -> Emitted:
        return self._binary(other, "fmul", "mul")

    def __and__(self, other: Emitted | float) -> Emitted:
        return self._binary(other, "", "and_")

    def __or__(self, other: Emitted | float) -> Emitted:
        return self._binary(other, "", "or_")

    def __xor__(self, other: Emitted | float) -> Emitted:
        return self._binary(other, "", "xor")

    def __lshift__(self, other: Emitted | float) -> Emitted:
        return self._binary(other, "", "shl")

    def __rshift__(self, other: Emitted | float) -> Emitted:
        return self._binary(other, "", "lshr")

    @lined_up
    def compare(self, relation: str, other: Emitted | float) -> Emitted:
        """ "==" "!=" "<" "<=" ">" ">=" on signed integers, with a leading u ("u<") on unsigned ones."""
        compare = self.b.icmp_unsigned if relation.startswith("u") else self.b.icmp_signed
        return Emitted(self.b, compare(relation.lstrip("u"), self.v, self.like(other).v))

    @lined_up
    def where(self, yes: Emitted, no: Emitted | float) -> Emitted:
        """Lane by lane: `yes` where self (a vector of i1) holds, else `no`."""
        return Emitted(self.b, self.b.select(self.v, yes.v, yes.like(no).v))

    def any(self) -> Emitted:
        """Whether some lane of a vector of i1 holds."""
        bits = self.b.bitcast(self.v, ir.IntType(self.type.count))
        return Emitted(self.b, self.b.icmp_unsigned("!=", bits, bits.type(0)))

    @lined_up
    def cast(self, element: ir.Type, how: str) -> Emitted:
        """Every lane converted by an LLVM conversion: zext sext trunc fptosi sitofp uitofp fpext fptrunc."""
        kind = ir.VectorType(element, self.type.count) if isinstance(self.type, ir.VectorType) else element
        return Emitted(self.b, getattr(self.b, how)(self.v, kind))

    @lined_up
    def bits_as(self, element: ir.Type, count: int | None = None) -> Emitted:
        """The same bits as lanes of another type."""
        vector = isinstance(self.type, ir.VectorType)
        kind = ir.VectorType(element, count or self.type.count) if vector else element
        return Emitted(self.b, self.b.bitcast(self.v, kind))

    def spread(self, count: int) -> Emitted:
        """A scalar in every one of `count` lanes."""
        kind = ir.VectorType(self.type, count)
        first = self.b.insert_element(ir.Constant(kind, ir.Undefined), self.v, I32(0))
        return Emitted(self.b, self.b.shuffle_vector(first, first, ir.Constant(ir.VectorType(I32, count), [0] * count)))

    @lined_up
    def lanes(self, indices: list[int]) -> Emitted:
        """The lanes named, in that order."""
        mask = ir.Constant(ir.VectorType(I32, len(indices)), indices)
        return Emitted(self.b, self.b.shuffle_vector(self.v, self.v, mask))

    @lined_up
    def call(self, name: str, *more: Emitted | float, flags: tuple[bool, ...] = ()) -> Emitted:
        """An overloaded LLVM intrinsic on values of this type, e.g. umax, ctlz (with its flag), fma."""
        args = [self.v, *(self.like(m).v for m in more)]
        kinds = [a.type for a in args] + [I1] * len(flags)
        function = cgutils.get_or_insert_function(
            self.b.module, ir.FunctionType(self.type, kinds), f"llvm.{name}.{_letters(self.type)}"
        )
        return Emitted(self.b, self.b.call(function, [*args, *(I1(f) for f in flags)]))


class Abreast(Emitted):
    """Values that take every step together: each operation is emitted for all members before the next.

    A chain of operations alone keeps few of a processor's units busy, and it looks only so far ahead for another.
    """

    __slots__ = ("members",)

    def __init__(self, members: Sequence[Emitted]) -> None:
        super().__init__(members[0].b, members[0].v)
        self.members = list(members)

    def any(self) -> Emitted:
        """Whether some lane of some member holds."""
        found = self.members[0].v
        for member in self.members[1:]:
            found = self.b.or_(found, member.v)
        return Emitted(self.b, found).any()


def singly(x: Emitted) -> list[Emitted]:
    """The values of an `Abreast`; of any other, that alone."""
    return x.members if isinstance(x, Abreast) else [x]


def constant(b: ir.IRBuilder, kind: ir.Type, value: float) -> Emitted:
    """A constant, in every lane of a vector."""
    if isinstance(kind, ir.VectorType):
        value = kind.element(value).constant
        return Emitted(b, ir.Constant(kind, [value] * kind.count))
    return Emitted(b, kind(value))


def emit_load(b: ir.IRBuilder, pointer: Any, index: Emitted | int, count: int = 0, align: int = 1) -> Emitted:
    """pointer[index], or a vector of `count` elements from there; any alignment."""
    at = b.gep(pointer, [index.v if isinstance(index, Emitted) else I64(index)])
    if count:
        at = b.bitcast(at, ir.VectorType(pointer.type.pointee, count).as_pointer())
    return Emitted(b, b.load(at, align=align))


def emit_prefetch(b: ir.IRBuilder, address: Emitted, nearness: int) -> None:
    """Ask for the line of memory at an address before it is read; 3: into the first cache, 2: into the second. Any address may be asked for."""
    kind = ir.FunctionType(ir.VoidType(), [I8.as_pointer(), I32, I32, I32])
    declared = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(declared, [b.inttoptr(address.v, I8.as_pointer()), I32(0), I32(nearness), I32(1)])


def emit_store(b: ir.IRBuilder, value: Emitted, pointer: Any, index: Emitted | int) -> None:
    """pointer[index] = value, a scalar or a vector; any alignment."""
    at = b.gep(pointer, [index.v if isinstance(index, Emitted) else I64(index)])
    b.store(value.v, b.bitcast(at, value.type.as_pointer()), align=1)


def set_rounding(b: ir.IRBuilder, mode: Emitted) -> None:
    """Set the rounding of this thread's floating-point operations: NEAREST or TO_ZERO, an i32."""
    declared = cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), [I32]), "llvm.set.rounding")
    b.call(declared, [mode.v])


class Variable:
    """A value that a loop changes; LLVM keeps it in a register."""

    def __init__(self, b: ir.IRBuilder, start: Emitted) -> None:
        self.b, self.slot = b, cgutils.alloca_once(b, start.type)
        self.set(start)

    def get(self) -> Emitted:
        return Emitted(self.b, self.b.load(self.slot))

    def set(self, value: Emitted) -> None:
        self.b.store(value.v, self.slot)


def each(b: ir.IRBuilder, start: Emitted, stop: Emitted, body: Callable[[Emitted], None], unroll: int = UNROLL) -> None:
    """body(k) for every k from start to stop, `unroll` of them in one turn of the loop."""
    whole = start + ((stop - start) & -unroll)
    with loop(b, whole, unroll, start) as k:
        for u in range(unroll):
            body(k + u)
    with loop(b, stop, 1, whole) as k:
        body(k)


@contextmanager
def loop(
    b: ir.IRBuilder, stop: Emitted, step: int | Emitted = 1, start: Emitted | int = 0, small: bool = False
) -> Iterator[Emitted]:
    """``for i in range(start, stop, step)`` on i64; the body may make blocks of its own. small: LLVM is to leave it as it is written."""
    width = step if isinstance(step, Emitted) else Emitted(b, I64(step))
    index = Variable(b, start if isinstance(start, Emitted) else Emitted(b, I64(start)))
    head, body, done = (b.append_basic_block(name) for name in ("loop", "body", "done"))
    b.branch(head)
    b.position_at_end(head)
    b.cbranch(index.get().compare("<", stop).v, body, done)
    b.position_at_end(body)
    yield index.get()
    index.set(index.get() + width)
    back = b.branch(head)
    if small:
        back.set_metadata("llvm.loop", _as_written(b.module))
    b.position_at_end(done)


def _as_written(module: ir.Module) -> Any:
    """What tells LLVM not to unroll a loop: it would write eight of every short one, and another for the rest, which takes as long as all else."""
    found = module.add_metadata([module.add_metadata(["llvm.loop.unroll.disable"])])
    found.operands = (found, *found.operands[-1:])  # a loop is known by a node that names itself
    return found


def function(module: ir.Module, name: str, arguments: dict[str, ir.Type], body: Callable[..., None]) -> ir.Function:
    """A void LLVM function of its own, never inlined, made once per module: nothing moves in or out of it.

    Its part of the stack starts with a cache line. LLVM would leave it at 16 bytes, and a vector kept there that lies across two
    lines loads at half speed.
    """
    if name in module.globals:
        return module.globals[name]
    made = ir.Function(module, ir.FunctionType(ir.VoidType(), list(arguments.values())), name)
    made.linkage = "internal"
    made.attributes.add("noinline")
    made.attributes.alignstack = LINE
    builder = ir.IRBuilder(made.append_basic_block("entry"))
    body(builder, **dict(zip(arguments, made.args, strict=True)))
    builder.ret_void()
    return made


def choose(
    b: ir.IRBuilder,
    which: ir.Value,
    name: str,
    bodies: Sequence[tuple[int, Callable[..., None]]],
    arguments: dict[str, ir.Type],
    values: list[ir.Value],
) -> None:
    """Call the function of the body whose number `which` is; none of them, nothing."""
    done = b.append_basic_block("chosen")
    switch = b.switch(which, done)
    for number, body in bodies:
        emitted = function(b.module, f"{name}_{number}", arguments, body)
        block = b.append_basic_block(f"{name}_{number}")
        switch.add_case(number, block)
        b.position_at_end(block)
        b.call(emitted, values)
        b.branch(done)
    b.position_at_end(done)
