"""What operators want of their operands, as forms; and operands drawn by them.

A form names the sizes of each operand: ``N C *s; F C/group *kernel_shape; F`` is a Conv's. Capital
letters are sizes, ``*s`` is any number of them, and the same name is the same size in all operands;
small letters are attributes. What is known of the operands and attributes binds names, and the rest
is drawn. An operand that holds numbers says which: ``1=at(a,b)`` counts axes, ``*i=places(D)``
chooses among so many. ``@axis=a`` says that an attribute counts the sizes of ``*a``, ``@transA=1``
that it is 1 here. ``|`` stands between alternatives, and ``...`` repeats the last operand.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from dplcli.ir.operators import GLOBAL_POOLS, POOLS
from dplcli.pipeline.drawing import HALF, SIZES, DeadEndError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from dplcli.pipeline.drawing import Array, Attributes, Drawing, Shape


_CONV = "N C *s; F C/group *kernel_shape; F"
_NORM = "*a *b; *b; *b @axis=a:-1"
_ROWS = "B S H; B S H; H; H; H"
_RNN = (
    "T B I; D G*hidden_size I; D G*hidden_size hidden_size; D 2*G*hidden_size; B=lengths(T):int32"
)
_STATES = "; D B hidden_size; D B hidden_size; D 3*hidden_size"
_MATMUL = "*b M K; K O | *b M K; *b K O | M K; *b K O | *b M K; K | K; *b K O"

FORMS: Mapping[str, str] = {
    **dict.fromkeys(sorted((POOLS | GLOBAL_POOLS) - {"MaxUnpool"}), "N C *s"),
    "Conv": _CONV,
    "ConvTranspose": "N C *s; C F/group *kernel_shape; F",
    "ConvInteger": _CONV.rpartition(";")[0],
    "QLinearConv": "N C *s; _; _; F C/group *kernel_shape; _; _; _; _; F",
    "MatMul": _MATMUL,
    "MatMulInteger": _MATMUL,
    "QLinearMatMul": _MATMUL.replace("; ", "; _; _; "),
    "Gemm": "M K; K O; & M O | K M; K O; & M O @transA=1 | M K; O K; & M O @transB=1"
    " | K M; O K; & M O @transA=1 @transB=1",
    "BatchNormalization": "N C *s; C; C; C; C=positive | C; 1; 1; 1; 1=positive",
    "InstanceNormalization": "N C *s; C; C",
    "GroupNormalization": "N num_groups*Q *s; num_groups*Q; num_groups*Q"
    " | N num_groups*Q *s; num_groups; num_groups",
    "LayerNormalization": _NORM,
    "RMSNormalization": _NORM,
    "MeanVarianceNormalization": "N C H W",
    "LpNormalization": "*x Z",
    "LRN": "N C *s",
    "Reshape": "*x; =target(x)",
    "Squeeze": "*a 1 *b; 1=at(a,b) | *a 1 *b",
    "Unsqueeze": "*a *b; 1=at(a,b)",
    "Concat": "*a ? *b; ... @axis=a",
    "Slice": "*a Z *b; 1=start(Z); 1=end(Z); 1=at(a,b); 1=step",
    "Gather": "*a Z *b; *i=places(Z) @axis=a:0",
    "GatherElements": "*a Z *b; *a E *b=rows(Z,a) @axis=a:0",
    "ScatterElements": "*a Z *b; *a E *b=rows(Z,a); *a E *b @axis=a:0",
    "GridSample": "N C H W; N I J 2 | N C H W Z; N I J K 3",
    "OneHot": "*x:int64; =depth; 2:float32",
    "AffineGrid": "N 2 3; 4=grid | N 3 4; 5=grid",
    "ReverseSequence": "T B *x; B=lengths(T) | B T *x; B=lengths(T) @batch_axis=0 @time_axis=1",
    "RNN": _RNN.replace("G*", "") + _STATES,
    "GRU": _RNN.replace("G", "3") + _STATES,
    "LSTM": _RNN.replace("G", "4") + _STATES,
    "Expand": "*x; =widened(x)",
    "Tile": "*x; =repeats(x)",
    "Pad": "*x; =pads(x); ",
    "Clip": "*x; =low; =high",
    "PRelu": "N C *s; & C *s",
    "Split": "*a parts*Q *b; =lengths_of(parts,Q) @axis=a:0 | *a Z *b; =cut(parts,Z) @axis=a:0",
    "TopK": "*a Z *b; 1=count(Z) @axis=a:-1",
    "CumSum": "*a Z *b; =at(a,b)",
    "Trilu": "*x M N; =diagonal",
    "Compress": "*a Z *b; E=truth @axis=a",
    "NegativeLogLikelihoodLoss": "N C *s; N *s=places(C); C",
    "SoftmaxCrossEntropyLoss": "N C *s; N *s=places(C); C",
    "RoiAlign": "N C H W; 2 4=corners; 2=zeros",
    "Col2Im": "N 4*C 6; 2=blocks_in; 2=blocks",
    "RotaryEmbedding": "B H S 4; B S 2; B S 2 | B H S 4; T 2; T 2; B S=places(T)",
    "STFT": "N 12 1; =few; 4; =frame",
    "Dropout": "*x; =ratio; =truth",
    "ConstantOfShape": "=sizes",
    "EyeLike": "M N",
    "Det": "*x M M",
    "DepthToSpace": "N C*blocksize*blocksize H W",
    "SpaceToDepth": "N C H*blocksize W*blocksize",
    "CenterCropPad": "*x; =sizes_of(x)",
    "Range": "=begin; =limit; =few",
    "Hardmax": "*x Z",
    "Attention": "B H S E; B H T E; B H T E; & S T | B S P*E; B T P*E; B T P*E; & S T"
    " @q_num_heads=P @kv_num_heads=P",
    "com.microsoft.MatMulNBits": "*b M K; O 1+(K-1)//block_size block_size/2=bytes:uint8;"
    " O*(1+(K-1)//block_size)=positive @K=K @N=O @bits=4",
    "com.microsoft.SkipLayerNormalization": _ROWS,
    "com.microsoft.SkipSimplifiedLayerNormalization": "B S H; B S H; H; H",
    "com.microsoft.BiasGelu": "*x H; H",
    "com.microsoft.Gelu": "*x",
    "com.microsoft.QuickGelu": "*x",
    "com.microsoft.FastGelu": "*x H; H",
    "com.microsoft.Attention": "B S I; I 3*num_heads*E; 3*num_heads*E",
    "com.microsoft.MultiHeadAttention": "B S num_heads*E; B T num_heads*E; B T num_heads*E",
    "com.microsoft.FusedConv": _CONV + "; & F",
    "com.microsoft.FusedMatMul": "*b M K; *b K O | *b K M; *b K O @transA=1"
    " | *b M K; *b O K @transB=1 | *b K M; *b O K @transA=1 @transB=1",
    "com.microsoft.TransposeMatMul": "*b M K; *b K O",
    "com.microsoft.QLinearAdd": "*x; ; =zero; & *x; ; =zero; ; =zero",
    "com.microsoft.QLinearMul": "*x; ; =zero; & *x; ; =zero; ; =zero",
    "com.microsoft.QLinearSigmoid": "*x; ; =zero; ; =zero",
    "com.microsoft.QLinearLeakyRelu": "*x; ; =zero; ; =zero",
    "com.microsoft.DynamicQuantizeMatMul": "*b M K; K O=bytes:uint8; ; =zero:uint8",
    "com.microsoft.Inverse": "*x M M",
}
"""The forms of those operators whose operands have to fit each other in ways of their own."""

# Reading forms.


class Operand(NamedTuple):
    """One operand of a form.

    Attributes:
        dims: Its sizes: expressions, and names with a star; None where nothing is said.
        is_beside: Whether it only has to broadcast to these.
        kind: What its numbers are, "" for any, and of which names.
        of: The names.
        dtype: Its element type, "" for that of the others.
    """

    dims: tuple[str, ...] | None
    is_beside: bool = False
    kind: str = ""
    of: tuple[str, ...] = ()
    dtype: str = ""


class Alternative(NamedTuple):
    """One way to fit operands together.

    Attributes:
        operands: The operands.
        stated: The attributes that are one number here, and that number or name.
        counted: The attribute that counts sizes, the name of these, and what it is by default.
    """

    operands: tuple[Operand, ...]
    stated: Mapping[str, str]
    counted: tuple[str, str, str] | None


_MOST_REPEATED = 15
_SETTING = re.compile(r"@(\w+)=(\w+)(?::(-?\d+))?")
_OPERAND = re.compile(r"(& )?([^=:]*)(?:=(\w+)(?:\(([\w,]*)\))?)?(?::(\w+))?")


@cache
def alternatives_of(form: str) -> tuple[Alternative, ...]:
    """Read a form."""
    return tuple(map(_alternative, form.split(" | ")))


def _alternative(text: str) -> Alternative:
    settings = _SETTING.findall(text)
    counted = next(((n, v, d) for n, v, d in settings if v.islower()), None)
    operands: list[Operand] = []
    for part in _SETTING.sub("", text).split(";"):
        if part.strip() == "...":
            operands += operands * _MOST_REPEATED
            continue
        found = _OPERAND.fullmatch(part.strip())
        assert found is not None, part  # noqa: S101  # the table is ours
        beside, dims, kind, of, dtype = found.groups()
        names = tuple(of.split(",")) if of else ()
        sizes = None if dims.strip() == "_" or (kind and not dims) else tuple(dims.split())
        operands.append(Operand(sizes, bool(beside), kind or "", names, dtype or ""))
    stated = {name: value for name, value, _ in settings if not value.islower()}
    return Alternative(tuple(operands), stated, counted)


# Fitting operands to a form.


@dataclass
class Fit:
    """One node whose operands are drawn by an alternative of its form.

    Attributes:
        drawing: Draws the graph.
        args: The names of the operands.
        attributes: What is known of the attributes; what is drawn is added.
        alternative: The alternative.
        outputs: How many results the node has.
        sizes: The sizes bound so far, by their names.
        lists: What names with a star stand for so far.
        last: What kinds of numbers that belong together tell each other.
    """

    drawing: Drawing
    args: Sequence[str]
    attributes: Attributes
    alternative: Alternative
    outputs: int
    sizes: dict[str, int] = field(default_factory=dict)
    lists: dict[str, Shape] = field(default_factory=dict)
    last: dict[str, int] = field(default_factory=dict)

    def draw(self) -> None:
        """Bind what is known, and draw the other operands.

        Raises:
            DeadEndError: They do not fit.
        """
        self.sizes["parts"] = self.outputs
        self._bind_attributes()
        pairs = [
            (name, operand)
            for name, operand in zip(self.args, self.alternative.operands, strict=False)
            if name
        ]
        for name, operand in pairs:
            shape = self.drawing.shape(name)
            if shape is not None and operand.dims is not None and not operand.is_beside:
                self._bind(operand.dims, shape)
        for name, operand in pairs:
            held = self.drawing.values.get(name)
            is_open = operand.kind in FITTING and operand.of[0] not in self.lists
            if is_open and held is not None and held.ndim == 1:
                self.lists[operand.of[0]] = FITTING[operand.kind](self, held)
        for name, operand in pairs:
            if self.drawing.shape(name) is None and not (operand.dims is None and not operand.kind):
                self._draw(name, operand)
        for name, value in self.alternative.stated.items():
            known = self._number(value)
            if self.attributes.setdefault(name, known) != known:
                raise DeadEndError
        self._count()

    # -- attributes ----------------------------------------------------------------------------

    def _bind_attributes(self) -> None:
        """Take sizes from attributes that the pattern states, or that it leaves as they are."""
        for name, value in self.alternative.stated.items():
            stated = self.attributes.get(name)
            if value.isdigit() and stated is not None and stated != int(value):
                raise DeadEndError
            if not value.isdigit() and isinstance(stated, int):
                self.sizes[value] = stated
        kernel = self.attributes.get("kernel_shape")
        if isinstance(kernel, tuple):
            self.lists["kernel_shape"] = tuple(int(size) for size in kernel)
        if any("D" in (operand.dims or ()) for operand in self.alternative.operands):
            ways = ("forward", "reverse", "bidirectional") if self.drawing.dares(HALF) else ()
            way = self.attributes.setdefault("direction", self.drawing.one_of(ways or ("forward",)))
            self.sizes["D"] = 1 + (way == "bidirectional")

    def _attribute(self, name: str, choices: Sequence[int]) -> int:
        """Return an attribute that sizes depend on; draw it if nobody states it."""
        stated = self.attributes.get(name)
        if not isinstance(stated, int):
            default = name == "group"
            stated = 1 if default and not self.drawing.dares(HALF) else self.drawing.one_of(choices)
            if not default or stated != 1:
                self.attributes[name] = stated
        return stated

    def _count(self) -> None:
        """Let an attribute count the sizes before an axis, from either end."""
        if self.alternative.counted is None:
            return
        name, of, default = self.alternative.counted
        rank = len(self.drawing.shape(self.args[0]) or ())
        axis = len(self.lists.get(of, ()))
        stated = self.attributes.get(name)
        if isinstance(stated, int):
            if stated % max(rank, 1) != axis % max(rank, 1):
                raise DeadEndError
        elif default == "" or int(default) % max(rank, 1) != axis:
            self.attributes[name] = axis - rank if self.drawing.dares(HALF) else axis

    # -- sizes ---------------------------------------------------------------------------------

    def _bind(self, dims: Sequence[str], shape: Shape) -> None:
        """Bind the names in *dims* to the sizes of an operand."""
        stars = [dim[1:] for dim in dims if dim[0] == "*"]
        room = len(shape) - (len(dims) - len(stars))
        room -= sum(len(self.lists[name]) for name in stars if name in self.lists)
        counts = self._split(dims, [name for name in stars if name not in self.lists], room, shape)
        at = 0
        for dim in dims:
            if dim[0] != "*":
                self._bind_size(dim, shape[at])
                at += 1
                continue
            name = dim[1:]
            count = len(self.lists[name]) if name in self.lists else counts[name]
            part = shape[at : at + count]
            if self.lists.setdefault(name, part) != part:
                raise DeadEndError
            at += count
        if at != len(shape):
            raise DeadEndError

    def _split(
        self, dims: Sequence[str], names: Sequence[str], room: int, shape: Shape
    ) -> dict[str, int]:
        """Say how many sizes each name with a star stands for."""
        if room < 0 or (room and not names):
            raise DeadEndError
        if len(names) < 2:  # noqa: PLR2004  # nothing is to be chosen
            return dict.fromkeys(names, room)
        places = list(range(room + 1))
        fixed = next((dim for dim in dims if dim.isdigit()), "")
        if fixed:  # *a 1 *b: where there is a one
            places = [at for at in places if shape[at] == int(fixed)]
        counted = self.alternative.counted
        if counted is not None and names[0] == counted[1]:
            stated = self.attributes.get(counted[0], None if counted[2] == "" else int(counted[2]))
            is_open = counted[0] not in self.attributes and self.drawing.dares(HALF)
            if isinstance(stated, int) and not is_open:
                if not -len(shape) <= stated < len(shape):
                    raise DeadEndError
                places = [at for at in places if at == stated % len(shape)]
        if not places:
            raise DeadEndError
        first = self.drawing.one_of(places)
        return {names[0]: first, names[1]: room - first}

    def _bind_size(self, dim: str, size: int) -> None:
        """Bind what a size is computed from; it has to be what is bound."""
        if dim == "?":
            return
        unknown = [name for name in _names_in(dim) if not self._is_known(name)]
        if not unknown:
            if self._number(dim) != size:
                raise DeadEndError
            return
        name = unknown[-1] if len(unknown) == 1 else next(filter(str.isupper, unknown), unknown[0])
        for other in unknown:
            if other != name:
                self._draw_name(other, size)
        for value in range(1, max(size, 1) * 4 + 1) if dim != name else (size,):
            if self._number(dim, {name: value}) == size:
                self._set(name, value)
                return
        raise DeadEndError

    def _is_known(self, name: str) -> bool:
        return name in self.sizes or isinstance(self.attributes.get(name), int)

    def _set(self, name: str, value: int) -> None:
        if name[0].isupper():
            self.sizes[name] = value
        elif name != "group" or value != 1:
            self.attributes[name] = value
        else:
            self.sizes[name] = value

    def _number(self, text: str, more: Mapping[str, int] | None = None) -> int:
        """Compute a size of those that are bound.

        Raises:
            DeadEndError: It is no whole number.
        """
        known = {**self.attributes, **self.sizes, **(more or {})}
        try:
            return _evaluated(ast.parse(text, mode="eval").body, known)
        except (KeyError, ZeroDivisionError) as error:
            raise DeadEndError from error

    def _draw_name(self, name: str, size: int = 0) -> None:
        """Draw a size, or an attribute that sizes depend on."""
        if name[0].isupper():
            self.sizes[name] = self.drawing.size(name, SIZES.get(name, ()))
            return
        channels = self.sizes.get("C", size)
        choices = {"group": (1, 1, 2, 3, channels), "block_size": (16, 32)}
        fitting = [n for n in choices.get(name, (2, 1, 3)) if name != "group" or not channels % n]
        self.sizes[name] = self._attribute(name, fitting)

    def _draw(self, name: str, operand: Operand) -> None:
        """Draw one operand, and bind what its shape says."""
        make, bound = MAKERS.get(operand.kind), (dict(self.sizes), dict(self.lists))
        shape = None if operand.dims is None else self._shape(name, operand.dims)
        if operand.is_beside and shape is not None:
            shape = self.drawing.beside(shape)
        dtype = operand.dtype or self._dtype()
        if make is None:
            found = self.drawing.leaf(name, shape or (), dtype, positive=operand.kind == "positive")
        else:
            sources = (
                self.lists[n] if n in self.lists else self.sizes.get(n, 0) for n in operand.of
            )
            data = np.asarray(make(self, shape, *sources))
            data = data if shape is None or data.shape == shape else data.reshape(shape)
            kind = {"f": dtype, "b": "bool", "u": "uint8"}.get(data.dtype.kind, "int64")
            found = self.drawing.leaf(name, data.shape, operand.dtype or kind, data=data)
        if operand.dims is not None and not operand.is_beside:
            if found != shape:  # somebody states it, or asks for it
                self.sizes, self.lists = bound
            self._bind(operand.dims, found)

    def _dtype(self) -> str:
        known = (self.drawing.types[name][0] for name in self.args if name in self.drawing.types)
        return next(known, "")

    def _shape(self, name: str, dims: Sequence[str]) -> Shape:
        """Return the shape of an operand; sizes that are not bound are drawn."""
        wanted = self.drawing.wanted_rank(name)
        shape: list[int] = []
        free = [dim[1:] for dim in dims if dim[0] == "*" and dim[1:] not in self.lists]
        rank = self.drawing.rank if wanted is None else wanted
        room = max(rank - sum(dim[0] != "*" for dim in dims), 0)
        room -= sum(len(self.lists.get(dim[1:], ())) for dim in dims if dim[0] == "*")
        for dim in dims:
            if dim[0] == "*":
                if dim[1:] not in self.lists:
                    is_last = dim[1:] == free[-1]
                    count = room if is_last else self._before(max(room, 0), rank, dim[1:])
                    room -= count
                    self.lists[dim[1:]] = self._list(dim[1:], max(count, 0), len(shape))
                shape += self.lists[dim[1:]]
            elif dim == "?":
                shape.append(self.drawing.size(dim, (1, 2, 3)))
            else:
                for part in _names_in(dim):
                    if not self._is_known(part):
                        self._draw_name(part)
                shape.append(self._number(dim))
        return tuple(shape)

    def _before(self, room: int, rank: int, name: str) -> int:
        """Draw how many sizes stand before an axis, unless an attribute says it."""
        counted = self.alternative.counted
        if counted is not None and counted[1] == name:
            stated = self.attributes.get(counted[0])
            if stated is None and counted[2] and not self.drawing.dares(HALF):
                stated = int(counted[2])
            if isinstance(stated, int):
                return min(stated % max(rank, 1), room)
        return int(self.drawing.random.integers(room + 1))

    def _list(self, name: str, count: int, at: int) -> Shape:
        """Draw the sizes that a name with a star stands for."""
        if name == "kernel_shape":
            count = len(self.lists.get("s", ())) or count
        choices = self.drawing.windows if name == "s" else SIZES.get(name, ())
        if choices:
            return tuple(self.drawing.size(name, choices) for _ in range(count))
        return self.drawing.dims_from(at, count)


def _names_in(dim: str) -> list[str]:
    return re.findall(r"[A-Za-z_]\w*", dim)


_SIGNS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
}


def _evaluated(tree: ast.expr, known: Mapping[str, Any]) -> int:
    """Compute a size; a quotient ``/`` has to be whole.

    Raises:
        DeadEndError: A quotient is not whole.
    """
    match tree:
        case ast.Constant(int(number)):
            return number
        case ast.Name(name):
            return int(known[name])
        case ast.BinOp(left, sign, right):
            over, under = _evaluated(left, known), _evaluated(right, known)
            if isinstance(sign, ast.Div) and over % under:
                raise DeadEndError
            return _SIGNS[type(sign)](over, under)
        case _:
            raise DeadEndError


# Numbers that operands hold.


def _at(fit: Fit, _: Shape | None, before: Shape, behind: Shape) -> int:
    """Count an axis from either end."""
    return len(before) if not fit.drawing.dares(HALF) else -(len(behind) + 1)


def _target(fit: Fit, _: Shape | None, shape: Shape) -> list[int]:
    """Return a shape of as many elements, as a Reshape spells it."""
    size = math.prod(shape)
    options: list[list[int]] = [[size], [-1], list(shape), [1, size], [size, 1]]
    for cut in range(1, len(shape)):
        head, tail = math.prod(shape[:cut]), math.prod(shape[cut:])
        options += [[head, tail], [-1, tail], [head, -1], [0, -1]]
        options += [[*shape[:cut], -1], [tail, head]]
    for cut, dim in enumerate(shape):
        if dim % 2 == 0:
            options += [[*shape[:cut], 2, dim // 2, *shape[cut + 1 :]]]
            options += [[*shape[:cut], dim // 2, 2, *shape[cut + 1 :]]]
    options += [list(fit.drawing.random.permutation(shape))] if shape else []
    wished = [int(n) for n in fit.drawing.numbers if n and float(n).is_integer()]
    options += [[n, -1] for n in wished if n > 0 and size % n == 0]
    return [int(dim) for dim in fit.drawing.one_of(options)]


def _widened(fit: Fit, _: Shape | None, shape: Shape) -> Shape:
    wide = tuple(3 if d == 1 else d for d in shape)
    ones = tuple(1 for _ in shape)
    return tuple(fit.drawing.one_of((shape, wide, (2, *wide), ones, (2, *shape))))


def _pads(fit: Fit, _: Shape | None, shape: Shape) -> Any:  # noqa: ANN401  # an array
    drawing = fit.drawing
    pads = drawing.random.integers(-1 if drawing.dares(0.12) else 0, 3, 2 * len(shape))
    if drawing.is_of_images:  # a window takes no batch and no channels in
        quiet = [0, 1, len(shape), len(shape) + 1]
        pads[[at for at in quiet if at < len(pads)]] = 0
    return pads


def _cut(fit: Fit, _: Shape | None, count: int, size: int) -> Any:  # noqa: ANN401  # an array
    """Cut a size into so many."""
    cuts = np.sort(fit.drawing.random.permutation(np.arange(1, size))[: count - 1])
    sizes = np.diff([0, *cuts, size])
    if len(sizes) != count:
        raise DeadEndError
    return sizes


def _places(fit: Fit, form: Shape | None, size: int) -> Any:  # noqa: ANN401  # an array
    """Choose among so many, from either end."""
    low = -size if fit.drawing.dares(HALF) else 0
    return fit.drawing.random.integers(low, size, form)


def _rows(fit: Fit, form: Shape | None, size: int, before: Shape) -> Any:  # noqa: ANN401  # an array
    """Choose rows along an axis; none twice where they are written, unless that adds up."""
    drawing, axis, form = fit.drawing, len(before), form or ()
    updates = len(fit.args) > 2  # noqa: PLR2004  # what is written
    if updates and drawing.dares(HALF):
        fit.attributes.setdefault("reduction", drawing.one_of(("none", "add", "mul", "max", "min")))
    if form[axis] > size:
        raise DeadEndError
    if not updates or fit.attributes.get("reduction", "none") != "none":
        return drawing.random.integers(0, size, form)
    wide = np.indices((*form[:axis], size, *form[axis + 1 :]))[axis]
    return np.take(drawing.random.permuted(wide, axis=axis), range(form[axis]), axis=axis)


def _start(fit: Fit, form: Shape | None, size: int) -> Any:  # noqa: ANN401  # an array
    ends = ((0, size, 1), (0, 2**31 - 1, 1), (0, -1, 1), (1, size, 1), (-2, 2**63 - 1, 1))
    others = ((-1, -(2**31), -1), (0, size, 2), (1, 2, 1), (0, 1, 1), (-1, size, 1))
    chosen = fit.drawing.one_of(ends + others if fit.drawing.dares(1.0) else ends)
    fit.last = dict(zip(("end", "step"), chosen[1:], strict=True))
    return np.full(form or (), chosen[0])


def _chosen(*options: Any) -> Callable[..., Any]:  # noqa: ANN401  # numbers
    return lambda fit, form, *_: np.full(form or (), fit.drawing.one_of(options))


def _between(low: int, high: int) -> Callable[..., Any]:
    return lambda fit, form, *_: fit.drawing.random.integers(low, high, form)


def _bound(usual: float) -> Callable[..., Any]:
    """Return a bound of a Clip."""

    def draw(fit: Fit, *_: object) -> float:
        moved = float(fit.drawing.random.normal()) if fit.drawing.dares(0.7) else 0.0
        return round(usual + moved, 2)

    return draw


def _narrowed(fit: Fit, value: Array) -> Shape:
    """Return a shape that an Expand to another widens, or not."""
    shape = tuple(map(int, value))
    ones = tuple(1 if fit.drawing.random.random() < HALF else size for size in shape)
    return tuple(fit.drawing.one_of((shape, ones, ones, shape[1:], tuple(1 for _ in shape))))


def _reordered(fit: Fit, value: Array) -> Shape:
    """Return a shape of as many elements."""
    shape = tuple(map(int, value))
    return tuple(fit.drawing.one_of((shape, shape[::-1], (math.prod(shape),), (1, *shape))))


FITTING: Mapping[str, Callable[[Fit, Array], Shape]] = {
    "widened": _narrowed,
    "target": _reordered,
    "repeats": lambda fit, value: fit.drawing.dims_from(0, len(value)),
}
"""What draws the shape of a leaf for numbers that are computed, by what the form calls them."""

MAKERS: Mapping[str, Callable[..., Any]] = {
    "at": _at,
    "target": _target,
    "widened": _widened,
    "pads": _pads,
    "cut": _cut,
    "places": _places,
    "rows": _rows,
    "start": _start,
    "end": lambda fit, form, size: np.full(form, fit.last.get("end", size)),
    "step": lambda fit, form: np.full(form, fit.last.get("step", 1)),
    "lengths_of": lambda _fit, _form, count, size: np.full(count, size),
    "repeats": lambda fit, _, shape: fit.drawing.random.integers(1, 3, len(shape)),
    "lengths": lambda fit, form, most: fit.drawing.random.integers(1, most + 1, form),
    "count": lambda fit, form, most: fit.drawing.random.integers(1, most + 1, form),
    "sizes": lambda fit, _: fit.drawing.dims_from(0, max(fit.drawing.rank, 1)),
    "sizes_of": lambda fit, _, shape: np.asarray(shape) + fit.drawing.random.integers(-1, 2),
    "corners": lambda fit, _: np.sort(fit.drawing.random.uniform(0, 4, (2, 2, 2)), 1).reshape(2, 4),
    "zeros": lambda _fit, form: np.zeros(form, np.int64),
    "zero": _between(0, 9),
    "bytes": lambda fit, form: fit.drawing.random.integers(0, 256, form).astype(np.uint8),
    "truth": lambda fit, form: fit.drawing.random.integers(0, 2, form) > 0,
    "depth": _chosen(2, 3),
    "diagonal": _chosen(0, 1, -1),
    "blocks_in": lambda *_: np.array([3, 4]),
    "blocks": lambda *_: np.array([2, 2]),
    "few": _chosen(1, 2, 3),
    "grid": lambda fit, form: fit.drawing.random.integers(1, 4, form),
    "begin": _chosen(0, 1),
    "limit": _chosen(5, 6),
    "frame": _chosen(4),
    "ratio": _chosen(0.5, 0.25, 0.0),
    "low": _bound(-0.5),
    "high": _bound(0.75),
}
"""What draws numbers that operands hold, by what the form calls them."""


def drawn_by_form(
    form: str, drawing: Drawing, args: Sequence[str], attributes: Attributes, outputs: int
) -> None:
    """Draw the operands of a node by the first alternative of a form that fits, or by any.

    Raises:
        DeadEndError: None fits what is known.
    """
    ways = list(alternatives_of(form))
    if drawing.dares(0.7):
        drawing.random.shuffle(ways)
    for way in ways:
        known = dict(attributes)
        before = drawing.mark()
        fit = Fit(drawing, args, known, way, outputs)
        try:
            fit.draw()
        except DeadEndError:
            drawing.reset(before)
            continue
        attributes.update(known)
        return
    raise DeadEndError
