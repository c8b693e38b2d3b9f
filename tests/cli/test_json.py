"""The JSON that programs read: which keys, in stable bytes, without paths; whole or not at all."""

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest

import dplcli
from tests.cli.support import SAMPLES, Dpl, Save, contents
from tests.support.helpers import thinned

HEAD = ["schema", "dpl_version", "model"]
NODE = ["op_type", "domain", "name", "output"]
REFUSAL = ["rule", "root", "stage", "reason", "at"]
OUTPUT = [
    *("name", "dtype", "shape", "level", "baseline", "seed", "max_abs", "max_rel", "rmse"),
    *("cosine", "max_ulp", "mismatches", "nan_mismatches", "worst_index", "rtol", "atol"),
    *("ok", "reason", "excuse", "derivation", "mean_abs", "mean_rel", "quantile_abs", "snr_db"),
    *("inf_mismatches", "ulp_histogram", "worst_values", "needed_rtol", "needed_atol", "steps"),
    "sensitivity",
]
VERIFY = [
    *(
        "schema",
        "equivalent",
        "verdict",
        "doubts",
        "accepted",
        "proof",
        "unproved",
        "regions",
        "reasons",
        "seeds",
        "levels",
        "inputs",
        "outputs",
        "power",
    ),
    *("cases", "warnings"),
]
KNOWN = {"covered": 0, "of": 0}
COVERAGE = {
    "nodes": 2,
    "of": 4,
    "by_op": {
        "Conv": {"covered": 1, "of": 2, "flops": {"covered": 32, "of": 64, "unknown": KNOWN}},
        "Relu": {"covered": 1, "of": 2, "flops": {"covered": 16, "of": 32, "unknown": KNOWN}},
    },
    "flops": {"covered": 48, "of": 96, "unknown": KNOWN},
    "symbols": [],
    "sizes": {"given": {}, "chosen": {}},
    "by_target": {"t": {"nodes": 2, "flops": 48, "unknown": 0}},
    "left_out": [
        {"op": "Conv", "nodes": 1, "flops": 32, "unknown": 0, "rule": "", "stage": "",
         "reason": "no rule is rooted at this operator"},
        {"op": "Relu", "nodes": 1, "flops": 16, "unknown": 0, "rule": "t.r", "stage": "escape",
         "reason": "'c' is a graph output"},
    ],
}  # fmt: skip
COMMANDS = {
    "match": ("match", "m.onnx", "--target", "dnnl"),
    "partition": ("partition", "m.onnx", "--target", "dnnl", "-o", "out.onnx"),
    "rewrite": ("rewrite", "m.onnx", "-p", "fuse_ort", "-o", "out.onnx"),
    "verify": ("verify", "m.onnx", "m.onnx"),
    "inspect": ("inspect", "m.onnx"),
}


def record(dpl: Dpl, *arguments: object) -> dict[str, Any]:
    """Call dpl with ``--json -`` and return what it prints."""
    answer = dpl(*arguments, "--json", "-")
    assert (answer.code, answer.err) == (0, "")
    result: dict[str, Any] = json.loads(answer.out)
    return result


@pytest.fixture
def net(folder: Path, save: Save) -> Path:
    """Return a net with one match and one refused match (its product is an output, too)."""
    assert folder.is_dir()
    return save(
        """g (float[1, 1, 4, 4] x) => (float[1, 1, 4, 4] y, c) <float[1, 1, 1, 1] w = {2}>
        { c = Conv (x, w) d = Relu (c) e = Conv (d, w) y = Relu (e) }"""
    )


@pytest.fixture
def catalogue(folder: Path) -> Path:
    """Return a catalogue of the rule ``t.r``."""
    path = folder / "rules.yaml"
    path.write_text("dpl: 1\ntarget: t\npatterns: [{name: r, pattern: 'Relu(Conv(x, w))'}]\n")
    return path


def test_match_has_the_keys_of_the_contract(dpl: Dpl, net: Path, catalogue: Path) -> None:
    """dpl.match/1: counts, every match with its nodes and bindings, every refusal."""
    found = record(dpl, "match", net, "-p", catalogue)

    assert list(found) == [*HEAD, "counts", "unmet", "matches", "refused", "hints"]
    assert [found[key] for key in HEAD] == ["dpl.match/1", dplcli.__version__, "m.onnx"]
    assert found["counts"] == {"t.r": 1}
    (match,) = found["matches"]
    assert list(match) == ["rule", "scope", "root", "nodes", "bindings"]
    assert (match["rule"], match["scope"]) == ("t.r", "main")
    assert match["root"] == {"op_type": "Relu", "domain": "", "name": "", "output": "y"}
    assert [list(node) for node in match["nodes"]] == [NODE, NODE]
    assert [node["output"] for node in match["nodes"]] == ["e", "y"]
    assert match["bindings"] == {"w": "w", "x": "d"}
    (refusal,) = found["refused"]
    assert list(refusal) == REFUSAL
    assert list(refusal["root"]) == NODE
    assert (refusal["rule"], refusal["stage"], refusal["at"]) == ("t.r", "escape", "c")
    assert refusal["reason"]


def test_partition_has_the_keys_of_the_contract(dpl: Dpl, net: Path, catalogue: Path) -> None:
    """dpl.partition/1: what became a call of what, coverage, refusals and the verification."""
    found = record(dpl, "partition", net, "-p", catalogue, "-o", "out.onnx")

    keys = [*HEAD, "counts", "unmet", "partitions", "refused", "coverage", "objection"]
    keys += ["verification", "regions", "hints"]
    assert sorted(found) == sorted(keys)
    assert (found["schema"], found["counts"]) == ("dpl.partition/1", {"t.r": 1})
    (item,) = found["partitions"]
    assert list(item) == [
        *("rule", "target", "function", "call", "scope", "nodes", "inputs", "outputs"),
    ]
    assert (item["rule"], item["target"], item["scope"]) == ("t.r", "t", "main")
    assert item["function"] == {"domain": "t", "name": "r"}
    assert item["call"]
    assert [list(node) for node in item["nodes"]] == [NODE, NODE]
    assert (item["inputs"], item["outputs"]) == (["d", "w"], ["y"])
    assert [list(refusal) for refusal in found["refused"]] == [REFUSAL]
    assert found["coverage"] == COVERAGE
    assert list(found["verification"]) == VERIFY


def test_partition_without_verification_says_null(dpl: Dpl, net: Path, catalogue: Path) -> None:
    """With --no-verify there is the key, and no verdict."""
    options = ("-p", catalogue, "-o", "out.onnx", "--no-verify")
    assert record(dpl, "partition", net, *options)["verification"] is None


def test_verify_has_the_keys_of_the_contract(dpl: Dpl, net: Path) -> None:
    """dpl.verify/1: per level and output the figures and the tolerance they were held against."""
    other = onnx.load(net)
    other.graph.node[0].name = "renamed"
    onnx.save(other, "other.onnx")
    found = record(dpl, "verify", net, "other.onnx", "--level", "disable", "--level", "all")

    assert list(found) == [*HEAD, "candidate", *VERIFY[1:]]
    assert (found["model"], found["candidate"]) == ("m.onnx", "other.onnx")
    assert (found["proof"], found["unproved"]) == (
        {"calls": 0, "undone": 0},
        "",
    )
    assert (found["schema"], found["equivalent"]) == ("dpl.verify/1", True)
    assert (found["seeds"], found["levels"]) == ([0, 1], ["disable", "all"])
    (choice,) = found["inputs"]
    assert list(choice) == ["name", "dtype", "shape", "low", "high", "how"]
    assert [list(output) for output in found["outputs"]] == [OUTPUT] * 4
    assert [(output["name"], output["level"]) for output in found["outputs"]] == [
        *(("y", "disable"), ("c", "disable"), ("y", "all"), ("c", "all")),
    ]
    assert found["power"] == {"blind_outputs": []}


def test_inspect_has_these_keys(dpl: Dpl, net: Path, catalogue: Path) -> None:
    """dpl.inspect/1: interface, operators, weights and functions."""
    assert dpl("partition", net, "-p", catalogue, "-o", "out.onnx").code == 0
    found = record(dpl, "inspect", "out.onnx")

    assert list(found) == [
        *(*HEAD, "ir_version", "opsets", "inputs", "outputs", "nodes"),
        *("initializers", "overridable", "functions", "notes"),
    ]
    assert (found["schema"], found["model"]) == ("dpl.inspect/1", "out.onnx")
    assert found["opsets"] == {"ai.onnx": 17, "t": 1}
    assert found["inputs"] == [{"name": "x", "dtype": "float32", "shape": [1, 1, 4, 4]}]
    assert [list(output) for output in found["outputs"]] == [["name", "dtype", "shape"]] * 2
    assert list(found["nodes"]) == ["total", "main", "by_op"]
    assert (found["nodes"]["total"], found["nodes"]["main"]) == (5, 3)
    assert found["initializers"] == {"count": 1, "elements": 1, "external": 0}
    assert found["functions"] == [
        {"domain": "t", "name": "r", "nodes": 2, "calls": 1, "composite": "t.r"}
    ]


def test_inspect_lists_all_nodes(dpl: Dpl, save: Save) -> None:
    """By the names that other commands take, with types; bodies and functions are graphs, too."""
    text = """g (float[n,4] x, bool c) => (float[n,4] y) { a = Relu (x)
        y = If (c) <then_branch = t () => (p) { p = Neg (a) },
                    else_branch = e () => (q) { [two] q = Abs (a) }> }"""
    save(text, "i.onnx")
    answer = dpl("inspect", "i.onnx", "--nodes", "--json", "nodes.json")
    assert [line.split() for line in answer.out.splitlines()[1:]] == [
        ["Relu", "a", "float32[n,4]", "main"],
        ["If", "y", "float32[n,4]", "main"],
        ["Neg", "p", "float32[n,4]", "main/y.then_branch"],
        ["two", "Abs", "q", "float32[n,4]", "main/y.else_branch"],
    ]
    names = [
        node["outputs"][0]["name"] for node in json.loads(Path("nodes.json").read_text())["nodes"]
    ]
    assert names == list("aypq")
    assert dpl("inspect", "i.onnx", "--nodes", "--contract").code == 2
    for command in (("learn", "i.onnx", "--nodes", "nosuch"), ("inspect", "i.onnx", "--node", "s")):
        assert dpl(*command).hint == "dpl inspect --nodes lists them"


def test_inspect_of_one_node_is_about_that_node(dpl: Dpl, model: Path) -> None:
    """``--node`` and ``--json`` together do not ignore one of the two."""
    answer = dpl("inspect", model, "--node", "Relu_0", "--json", "-")

    assert answer.code == 2 or "Relu_0" in answer.out


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_report_in_a_file_is_the_one_on_stdout(
    dpl: Dpl, folder: Path, command: tuple[str, ...]
) -> None:
    """FILE gets the bytes that ``-`` prints; the table is printed with FILE, and not with ``-``."""
    printed = dpl(*command, "--json", "-")
    filed = dpl(*command, "--json", "report.json")

    assert (printed.code, filed.code) == (0, 0)
    assert (folder / "report.json").read_text(encoding="utf-8") == printed.out
    assert printed.out.startswith('{\n "schema": "dpl.')
    assert printed.out.endswith("}\n")
    assert "{" not in filed.out
    assert filed.out == dpl(*command).out


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_report_replaces_an_older_one_in_one_step(
    dpl: Dpl, folder: Path, command: tuple[str, ...]
) -> None:
    """The old report stays whole for whoever has it open, and no temporary file is left."""
    (folder / "report.json").write_text("old")
    (folder / "kept.json").hardlink_to(folder / "report.json")

    assert dpl(*command, "--json", "report.json").code == 0

    assert (folder / "kept.json").read_text() == "old"
    names = {"m.onnx", "report.json", "kept.json", "out.onnx"}
    assert contents(folder).keys() <= names


@pytest.mark.usefixtures("model")
def test_an_unmet_expectation_is_reported_all_the_same(dpl: Dpl, folder: Path) -> None:
    """Exit 1 comes with what was found; a rule that matches nothing has no count."""
    answer = dpl(*COMMANDS["match"], "--expect", "dnnl.conv2d>0", "--json", "report.json")

    assert answer.code == 1
    report = json.loads((folder / "report.json").read_text())
    assert report["unmet"] == ["expected dnnl.conv2d>0, found 0"]
    assert "dnnl.conv2d" not in report["counts"]


@pytest.mark.long
@pytest.mark.parametrize("name", thinned(2, ["residual_block", "light_squeezenet"]))
def test_the_same_bytes_in_every_run(dpl_process: Dpl, folder: Path, name: str) -> None:
    """Nothing depends on hashing: reports and model are the same with any PYTHONHASHSEED."""
    shutil.copy(SAMPLES / f"{name}.onnx", folder / "m.onnx")
    partition = (*COMMANDS["partition"], "--no-verify", "--json", "-")
    seen = set()
    for seed in ("0", "4711"):
        answer = dpl_process(*partition, PYTHONHASHSEED=seed)
        assert answer.code == 0
        seen.add((answer.out, (folder / "out.onnx").read_bytes()))
    assert len(seen) == 1


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_no_path_of_this_machine_is_in_a_report_or_a_model(
    dpl: Dpl, folder: Path, command: tuple[str, ...]
) -> None:
    """Absolute paths as arguments give the same report, and leave no trace in the model."""
    relative = dpl(*command, "--json", "-")
    absolute = [folder / word if word.endswith(".onnx") else word for word in command]

    answer = dpl(*absolute, "--json", "-")

    assert answer.code == 0
    assert answer.out == relative.out
    assert str(folder) not in answer.out
    assert all(str(folder).encode() not in data for data in contents(folder).values())
