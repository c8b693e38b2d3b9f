"""Values inside a model, a few at a time, so that they never fill the memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import onnx

from dplcli.verify.capturing import capture
from dplcli.verify.interface import read_model
from dplcli.verify.judgement import REFERENCE
from dplcli.verify.sessions import Leaf, RunError, Runner

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from dplcli.verify.sessions import Feed, Outputs, Source

DEFAULT_CAP = 256 << 20
"""Bytes of intermediate values that are held at once, of one model."""

_WIDEST = 8
_SAMPLE = 512
_PREFIX = "dpl/elements of/"


@dataclass(frozen=True)
class Sketch:
    """What is remembered of a value that is not kept.

    Attributes:
        dtype: Its element type.
        shape: Its dimensions.
        sample: Up to 512 elements, at places that depend on the shape alone.
    """

    dtype: str
    shape: tuple[int, ...]
    sample: Leaf


def sketch(leaf: Leaf) -> Sketch:
    """Remember a value by a sample of its elements."""
    flat = leaf.data.reshape(-1)
    if flat.size > _SAMPLE:
        places = np.random.default_rng(flat.size).choice(flat.size, _SAMPLE, replace=False)
        flat = flat[np.sort(places)]
    return Sketch(leaf.dtype, leaf.data.shape, Leaf("", leaf.dtype, flat.copy()))


class Stream:
    """The values inside a model that runs on given inputs, with optimisation off.

    Args:
        source: The model.
        feeds: What it is fed.
        cap: How many bytes of values to hold at once; one value may need more.
    """

    def __init__(self, source: Source, feeds: Mapping[str, Feed], cap: int = DEFAULT_CAP) -> None:
        """Run nothing yet."""
        self.source = source
        self.feeds = feeds
        self.cap = cap
        self.peak = 0

    def sizes(self, names: Sequence[str]) -> dict[str, int]:
        """Return how many bytes each value takes at most; what is no tensor is left out."""
        found: dict[str, int] = {}
        pending = [list(names)]
        while pending:
            part = pending.pop()
            if not part:
                continue
            try:
                found |= self._measure(part)
            except RunError:
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]] if middle else []
        return {name: found[name] for name in names if name in found}

    def _measure(self, names: Sequence[str]) -> dict[str, int]:
        """Let the model itself count elements, so that nothing large is handed over."""
        model = onnx.ModelProto()
        if self.source.content is None:
            model = read_model(self.source.path)
        else:
            model.ParseFromString(self.source.content)
        del model.graph.output[:]
        for name in names:
            count = f"{_PREFIX}{name}"
            model.graph.node.add(op_type="Size", input=[name], output=[count], name=count)
            shape: list[int] = []
            info = onnx.helper.make_tensor_value_info(count, onnx.TensorProto.INT64, shape)
            model.graph.output.append(info)
        counted = replace(self.source, content=model.SerializeToString())
        values = Runner(counted, REFERENCE).run(self.feeds)
        return {name: int(values[_PREFIX + name][0].data) * _WIDEST for name in names}

    def chunks(self, sizes: Mapping[str, int]) -> Iterator[list[str]]:
        """Yield names whose values fit under the cap together, in order."""
        chunk: list[str] = []
        used = 0
        for name, size in sizes.items():
            if chunk and used + size > self.cap:
                yield chunk
                chunk, used = [], 0
            chunk.append(name)
            used += size
        if chunk:
            yield chunk

    def values(self, names: Sequence[str]) -> Outputs:
        """Return the values of *names* all at once.

        Raises:
            RunError: The model does not run when it is asked for them.
        """
        found = capture(self.source, names, self.feeds)
        held = sum(leaf.data.nbytes for leaves in found.values() for leaf in leaves)
        self.peak = max(self.peak, held)
        return found

    def sketches(self, names: Sequence[str]) -> dict[str, Sketch]:
        """Return a sketch of every tensor among *names*."""
        found = {}
        for chunk in self.chunks(self.sizes(names)):
            for name, leaves in self.values(chunk).items():
                if len(leaves) == 1 and not leaves[0].label:
                    found[name] = sketch(leaves[0])
        return found
