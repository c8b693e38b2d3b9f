"""A file whose nodes had to be sorted is another file: it is checked, and not called unchanged."""

import onnx
import onnx.parser
import pytest

from tests.cli.support import Dpl, Save

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[2] x) => (float[2] y) { a = Abs (x) y = Neg (a) }"""


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("command", [["partition", "-p", "conv_relu"], ["repeat"], ["inline"]])
def test_sorting_is_a_change(dpl: Dpl, save: Save, command: list[str], *, is_sorted: bool) -> None:
    """Though nothing is outlined or inlined, what is written was compared with the original."""
    model = onnx.parser.parse_model(TEXT)
    if not is_sorted:
        nodes = list(model.graph.node)
        del model.graph.node[:]
        model.graph.node.extend(reversed(nodes))
    save(model)
    answer = dpl(command[0], "m.onnx", *command[1:], "-o", "o.onnx")
    assert answer.code == 0
    assert (
        "Equivalent by proof: both are the same graph, node for node" in answer.out
    ) is not is_sorted
    assert ("o.onnx, unchanged." in answer.out) is is_sorted
