"""Inputs that somebody brings: files of every kind, functions, and what does not fit."""

import math
import zipfile
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from dplcli.errors import UsageError, VerificationError
from dplcli.verify import Check, VerificationResult
from dplcli.verify.check import InputRequest
from dplcli.verify.equivalence import verify_equivalence
from dplcli.verify.evidence import load_evidence
from dplcli.verify.inputs import files
from dplcli.verify.inputs.given import GivenSet, read_given
from dplcli.verify.model import input_ports

Save = Callable[..., Path]
Array = npt.NDArray[np.generic]

TWO = """g (float[N, 3] x, int64[N] i) => (float[N, 3] y) {
c = Cast <to = 1> (i) s = Constant <value_ints = [-1, 1]> () r = Reshape (c, s) y = Add (x, r) }"""
ONE = "g (float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }"
# Both give x, except where x is exactly 41.
SAME = "g (float[N, 3] x) => (float[N, 3] y) { y = Identity (x) }"
NOT_AT_41 = """g (float[N, 3] x) => (float[N, 3] y) <float k = {41}, float z = {0}>
{ e = Equal (x, k) y = Where (e, z, x) }"""
X = np.arange(6, dtype=np.float32).reshape(2, 3)
AT_41 = np.full((2, 3), 41, np.float32)


def check(ours: Path, *theirs: Path, **request: object) -> VerificationResult:
    """Compare two models, or one with itself, on what a request asks for."""
    settings = Check(levels=("disable",), request=InputRequest(**request))  # type: ignore[arg-type]
    return verify_equivalence(ours, theirs[0] if theirs else ours, settings)


def read(model: str, given: Path) -> list[GivenSet]:
    """Return what a path holds for a model in ONNX text."""
    graph = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]>\n{model}').graph
    return read_given(InputRequest(given=given), graph, input_ports(graph), (0, 1))


def save_pb(path: Path, array: Array, name: str = "") -> None:
    """Write one tensor as onnx test data."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(onnx.numpy_helper.from_array(array, name).SerializeToString())


@pytest.mark.parametrize("method", [0, 1, 8, 12, 14])
@pytest.mark.parametrize("is_secret", [False, True])
def test_an_archive_that_cannot_be_unpacked(
    tmp_path: Path, method: int, *, is_secret: bool
) -> None:
    """Said to be encrypted, or packed otherwise than it is: one line that names the file."""
    path = tmp_path / "x.npz"
    np.savez(path, x=X)
    data = bytearray(path.read_bytes())
    for mark, flags, packed in ((b"PK\x03\x04", 6, 8), (b"PK\x01\x02", 8, 10)):
        at = data.index(mark)
        data[at + flags] |= is_secret
        data[at + packed] = method
    path.write_bytes(data)
    if method == 0 and not is_secret:
        assert read(ONE, path)
        return
    for reader in (lambda: read(ONE, path), lambda: load_evidence(path)):
        with pytest.raises(UsageError, match=r"x\.npz: (not arrays|holds no saved|cannot be)"):
            reader()


@pytest.mark.parametrize("kind", ["npz", "npy", "pb", "set", "sets", "arrays", "function"])
def test_difference_that_only_the_given_values_show_is_found(
    save: Save, tmp_path: Path, kind: str
) -> None:
    """Whatever they come in, the values are fed: made-up ones never hit 41."""
    ours, theirs = save(SAME), save(NOT_AT_41, "theirs")
    np.savez(tmp_path / "x.npz", x=AT_41)
    np.save(tmp_path / "x.npy", AT_41)
    save_pb(tmp_path / "x.pb", AT_41)
    save_pb(tmp_path / "set" / "input_0.pb", AT_41)
    save_pb(tmp_path / "sets" / "test_data_set_0" / "input_0.pb", X)
    save_pb(tmp_path / "sets" / "test_data_set_1" / "input_0.pb", AT_41)
    (tmp_path / "arrays").mkdir()
    np.save(tmp_path / "arrays" / "x.npy", AT_41)
    request: dict[str, object] = (
        {"function": lambda _: {"x": AT_41}, "label": "f"}
        if kind == "function"
        else {
            "given": tmp_path
            / (kind if "." in kind or kind in {"set", "sets", "arrays"} else f"x.{kind}")
        }
    )

    assert all(output.ok for output in check(ours, theirs).outputs)
    result = check(ours, theirs, **request)
    assert not result.equivalent
    assert check(ours, **request).equivalent


def test_every_data_set_is_a_case_in_the_order_of_its_number(save: Save, tmp_path: Path) -> None:
    """Ten comes after nine, and a set may have its own shape."""
    for number in range(11):
        save_pb(tmp_path / f"test_data_set_{number}" / "input_0.pb", np.ones((number, 3), "f"))

    result = check(save(ONE), given=tmp_path)

    assert list(result.cases.values()) == [f"test_data_set_{n}" for n in range(11)]
    assert result.fed.startswith("test_data_set_0, test_data_set_1, ")
    assert result.fed.endswith("test_data_set_5, 5 more")


def test_every_case_holds_the_same_inputs(save: Save, tmp_path: Path) -> None:
    """A set that lacks one is a mistake, not a wish for a made-up value in that case alone."""
    save_pb(tmp_path / "test_data_set_0" / "input_0.pb", X)
    save_pb(tmp_path / "test_data_set_1" / "input_1.pb", np.arange(2))

    with pytest.raises(UsageError, match="test_data_set_1 holds 'i', but test_data_set_0 'x'"):
        check(save(TWO), given=tmp_path)


def test_the_case_at_fault_is_told(save: Save, tmp_path: Path) -> None:
    """The number in the output's record is the one of the set that shows the difference."""
    save_pb(tmp_path / "test_data_set_0" / "input_0.pb", X)
    save_pb(tmp_path / "test_data_set_1" / "input_0.pb", AT_41)

    result = check(save(SAME), save(NOT_AT_41, "theirs"), given=tmp_path)

    assert result.cases[result.outputs[0].seed] == "test_data_set_1"


def test_test_data_goes_by_name_where_all_names_are_inputs(tmp_path: Path) -> None:
    """Files in another order are told apart by the names inside; without names by position."""
    i = np.array([1, 2])
    save_pb(tmp_path / "named" / "input_0.pb", i, "i")
    save_pb(tmp_path / "named" / "input_1.pb", X, "x")
    save_pb(tmp_path / "placed" / "input_0.pb", X, "whatever")
    save_pb(tmp_path / "placed" / "input_1.pb", i, "i")

    for folder in ("named", "placed"):
        (found,) = read(TWO, tmp_path / folder)
        assert np.array_equal(np.asarray(found.values["x"]), X)
        assert np.array_equal(np.asarray(found.values["i"]), i)


def test_what_is_not_given_is_made_up_to_fit(save: Save, tmp_path: Path) -> None:
    """A symbol that the file decides holds for the other inputs."""
    np.savez(tmp_path / "some.npz", x=np.ones((5, 3), np.float32))

    result = check(save(TWO), given=tmp_path / "some.npz")

    assert [choice.shape for choice in result.inputs] == [(5, 3), (5,)]
    assert "some.npz" in result.inputs[0].how
    assert "some.npz" not in result.inputs[1].how


def test_index_that_is_made_up_fits_the_table_that_is_given(save: Save, tmp_path: Path) -> None:
    """The size of a given input bounds the indices into it."""
    path = save("g (float[S, 2] x, int64[300] i) => (float[a, b] y) { y = Gather (x, i) }")
    np.savez(tmp_path / "x.npz", x=np.ones((3, 2), np.float32))

    result = check(path, given=tmp_path / "x.npz")

    assert result.inputs[1].high == 2


def test_one_given_case_still_tells_whether_the_output_is_blind(save: Save, tmp_path: Path) -> None:
    """A second set is made up for that alone; it is not judged."""
    np.savez(tmp_path / "x.npz", x=X)
    constant = "g (float[N, 3] x) => (float[N, 3] y) { n = Sub (x, x) y = Abs (n) }"

    blind = check(save(constant), given=tmp_path / "x.npz")
    seeing = check(save(ONE, "one"), given=tmp_path / "x.npz")

    assert blind.blind_outputs == ("y",)
    assert seeing.blind_outputs == ()
    assert list(seeing.cases.values()) == ["x.npz"]


BAD: dict[str, tuple[str, object, str]] = {
    "no-such-file": ("x.npz", None, "no such file"),
    "not-a-zip": ("x.npz", b"hello", "not arrays"),
    "cut-off": ("x.npz", "cut", "not arrays"),
    "an-array-called-npz": ("x.npz", "npy", "holds one array"),
    "arrays-called-npy": ("x.npy", "npz", "several arrays"),
    "empty-npz": ("x.npz", {}, "holds no arrays"),
    "empty-file": ("x.npy", b"", "not an array"),
    "objects": ("x.npz", {"x": np.array([{}, {}], dtype=object)}, "not arrays"),
    "other-suffix": ("x.json", b"{}", "not inputs"),
    "not-protobuf": ("x.pb", b"\xff\xff\xff", "holds no tensor"),
    "misnamed": ("x.npz", {"X": X}, "no input 'X'"),
    "one-too-many": ("x.npz", {"x": X, "z": X}, "no input 'z'"),
    "rank": ("x.npz", {"x": X[0]}, "has the shape [3], but [N, 3]"),
    "dimension": ("x.npz", {"x": X.T}, "has the shape [3, 2], but [N, 3]"),
    "booleans": ("x.npz", {"x": X > 1}, "is bool, but float32"),
    "words": ("x.npz", {"x": np.full((2, 3), "a")}, "is str"),
    "complex": ("x.npz", {"x": X + 1j}, "is complex64, but float32"),
    "overflow": ("x.npz", {"x": X.astype(np.float64) + 1e300}, "1e+300, which is outside"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file_is_one_clear_message(save: Save, tmp_path: Path, name: str) -> None:
    """What is wrong, and in which file; never a traceback of numpy's or protobuf's."""
    file, content, message = BAD[name]
    path = tmp_path / file
    match content:
        case bytes():
            path.write_bytes(content)
        case dict():
            np.savez(path, **content)  # pickles what it has to
        case "npy" | "npz":
            other = path.with_suffix(f".{content}")
            np.save(other, X) if content == "npy" else np.savez(other, x=X)
            other.rename(path)
        case "cut":
            np.savez(path, x=np.ones((100, 3)))
            path.write_bytes(path.read_bytes()[:-200])
        case _:
            assert content is None

    with pytest.raises(UsageError) as caught:
        check(save(ONE), given=path)
    assert message in caught.value.message
    assert path.name in caught.value.message
    assert "\n" not in caught.value.message


def test_folder_without_inputs_is_named(save: Save, tmp_path: Path) -> None:
    """An empty folder, and one of something else, are no inputs."""
    folder = tmp_path / "empty"
    folder.mkdir()
    (folder / "notes.txt").write_text("x")

    with pytest.raises(UsageError, match="holds no inputs"):
        check(save(ONE), given=folder)


def test_damage_in_one_of_several_data_sets_is_found_before_anything_runs(
    save: Save, tmp_path: Path
) -> None:
    """The file is named, whichever set it is in."""
    save_pb(tmp_path / "test_data_set_0" / "input_0.pb", X)
    save_pb(tmp_path / "test_data_set_1" / "input_0.pb", X)
    (tmp_path / "test_data_set_1" / "input_0.pb").write_bytes(b"\x0a\xff")

    with pytest.raises(UsageError, match=r"test_data_set_1/input_0\.pb"):
        check(save(ONE), given=tmp_path)


def test_test_data_with_more_files_than_inputs_is_refused(save: Save, tmp_path: Path) -> None:
    """They belong to another model."""
    save_pb(tmp_path / "input_0.pb", X)
    save_pb(tmp_path / "input_7.pb", X)

    with pytest.raises(UsageError, match=r"input_7\.pb, but the model has 1 inputs"):
        check(save(ONE), given=tmp_path)


def test_data_in_another_file_is_not_followed(save: Save, tmp_path: Path) -> None:
    """Test data may name any path as its external data: nothing is opened."""
    tensor = onnx.numpy_helper.from_array(X)
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/hostname")
    (tmp_path / "x.pb").write_bytes(tensor.SerializeToString())

    with pytest.raises(UsageError, match="lie in another file"):
        check(save(ONE), given=tmp_path / "x.pb")


@pytest.mark.parametrize("suffix", ["npy", "pb"])
def test_lone_array_needs_a_lone_input(save: Save, tmp_path: Path, suffix: str) -> None:
    """With two inputs it is not guessed which one is meant; both are named."""
    np.save(tmp_path / "x.npy", X)
    save_pb(tmp_path / "x.pb", X)

    with pytest.raises(UsageError, match="2 inputs: x, i"):
        check(save(TWO), given=tmp_path / f"x.{suffix}")


def test_values_that_the_original_refuses_are_an_error_that_says_so(
    save: Save, tmp_path: Path
) -> None:
    """An index outside of the table is the file's fault, and no verdict."""
    path = save(
        """g (int64[2] i) => (float[a, b] y) <float[2, 1] t = {1, 2}> { y = Gather (t, i) }"""
    )
    np.save(tmp_path / "i.npy", np.array([0, 9]))

    with pytest.raises(UsageError, match=r"i\.npy: the original does not accept"):
        check(path, given=tmp_path / "i.npy")


@pytest.mark.parametrize(
    ("found", "kept"),
    [(np.float64, True), (np.float16, True), (np.int32, True), (np.uint8, True)],
)
def test_type_that_loses_nothing_is_bridged(tmp_path: Path, found: type, *, kept: bool) -> None:
    """Numpy makes float64 of everything: that is cast to what the model takes."""
    np.save(tmp_path / "x.npy", X.astype(found))

    (one,) = read(ONE, tmp_path / "x.npy")

    value = np.asarray(one.values["x"])
    assert (value.dtype == np.float32) == kept
    assert np.array_equal(value, X)


@pytest.mark.parametrize("value", [300, -1])
def test_whole_number_that_does_not_fit_is_refused(tmp_path: Path, value: int) -> None:
    """Nothing wraps around."""
    np.save(tmp_path / "x.npy", np.array([0, value]))

    with pytest.raises(UsageError, match=f"{value}, which is outside of uint8"):
        read("g (uint8[2] x) => (uint8[2] y) { y = Identity (x) }", tmp_path / "x.npy")


def test_fraction_is_not_cut_to_a_whole_number(tmp_path: Path) -> None:
    """Not even where the numbers happen to be whole."""
    np.save(tmp_path / "x.npy", X[0, :2])

    with pytest.raises(UsageError, match="is float32, but uint8"):
        read("g (uint8[2] x) => (uint8[2] y) { y = Identity (x) }", tmp_path / "x.npy")


def test_infinity_and_nan_may_be_given(tmp_path: Path) -> None:
    """They are values like others, and survive a cast."""
    np.save(tmp_path / "x.npy", np.array([[np.inf, np.nan, -np.inf]]))

    (one,) = read(ONE, tmp_path / "x.npy")

    assert str(np.asarray(one.values["x"]).tolist()) == "[[inf, nan, -inf]]"


def test_none_and_what_is_no_mapping_are_refused(save: Save) -> None:
    """A function's result is checked like a file's."""
    for result, message in [
        ([X], "returned list where a mapping"),
        (None, "returned NoneType"),
        ({"x": None}, "only an optional may be"),
        ({"x": [[1.0], [2.0, 3.0]]}, "is no array"),
        ({"X": X}, "no input 'X'"),
    ]:
        with pytest.raises(UsageError) as caught:
            check(save(ONE), function=lambda _, r=result: r, label="m:f")
        assert message in caught.value.message
        assert caught.value.message.startswith("m:f")


def test_function_that_fails_is_reported_with_its_seed(save: Save) -> None:
    """Also one that leaves the program."""

    def leave(seed: int) -> object:
        raise SystemExit(f"gone\nat {seed}")

    with pytest.raises(UsageError, match="failed with SystemExit for seed 0: gone at 0"):
        check(save(ONE), function=leave, label="m:f")


def test_function_is_called_once_for_each_seed(save: Save) -> None:
    """Each seed is a case of its own."""
    called: list[int] = []

    def make(seed: int) -> object:
        called.append(seed)
        return {"x": X + seed}

    settings = Check(seeds=(3, 8), request=InputRequest(function=make, label="m:f"))
    path = save(ONE)
    result = verify_equivalence(path, path, settings)

    assert called == [3, 8]
    assert result.cases == {3: "m:f, seed 3", 8: "m:f, seed 8"}


# Every kind of input that is saved, and what has to come back.
KINDS = {
    "float": "g (float[N, 3] x) => (float[N, 3] y) { y = Relu (x) }",
    "half": "g (float16[N, 3] x) => (float16[N, 3] y) { y = Relu (x) }",
    "bfloat16": "g (bfloat16[N, 3] x) => (float[N, 3] y) { y = Cast <to = 1> (x) }",
    "bool": "g (bool[N, 3] x) => (bool[N, 3] y) { y = Not (x) }",
    "string": "g (string[N] x) => (string[N] y) { y = Identity (x) }",
    "scalar": "g (int64 x) => (int64 y) { y = Identity (x) }",
    "sequence": "g (seq(float[2]) x) => (float[4] y) { y = ConcatFromSequence <axis = 0> (x) }",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seeds", [(0,), (0, 1)])
def test_what_is_saved_is_what_is_read(
    save: Save, tmp_path: Path, kind: str, seeds: tuple[int, ...]
) -> None:
    """Saved inputs give the same figures, are the same bytes each time, and save as the same."""
    path, first, second = save(KINDS[kind]), tmp_path / "a.npz", tmp_path / "b.npz"
    verify_equivalence(path, path, Check(seeds=seeds, request=InputRequest(save=first)))

    result = verify_equivalence(
        path, path, Check(seeds=seeds, request=InputRequest(given=first, save=second))
    )

    assert result.equivalent
    assert len(result.cases) == len(seeds) + 2 * ("N" in KINDS[kind])
    assert first.read_bytes() == second.read_bytes()
    with zipfile.ZipFile(first) as archive:
        assert {member.date_time[0] for member in archive.infolist()} == {1980}


def test_saved_float8_comes_back_as_such(tmp_path: Path) -> None:
    """Numpy cannot name the type; the model can."""
    values = np.array([0.5, -1.0, 3.0]).astype(ml_dtypes.float8_e4m3fn)
    np.savez(tmp_path / "x.npz", x=values.view("V1"))

    (one,) = read(
        "g (float8e4m3fn[3] x) => (float8e4m3fn[3] y) { y = Identity (x) }", tmp_path / "x.npz"
    )

    assert np.array_equal(np.asarray(one.values["x"]), values)


def test_empty_sequence_and_absent_optional_survive_saving(save: Save, tmp_path: Path) -> None:
    """Neither is made up anew when it is read back."""
    path = save("g (seq(float[2]) x) => (int64 y) { y = SequenceLength (x) }")
    saved = tmp_path / "s.npz"
    check(path, function=lambda _: {"x": []}, label="f", save=saved)

    graph = onnx.load(path).graph
    cases = read_given(InputRequest(given=saved), graph, input_ports(graph), (0,))

    assert [case.values["x"] for case in cases] == [[], []]


def test_input_named_like_a_case_or_an_element_is_not_taken_apart(tmp_path: Path) -> None:
    """Names may hold any sign: the model's own names come first."""
    graph = onnx.parser.parse_graph(ONE)
    other = onnx.parser.parse_graph(ONE)
    graph.input[0].name = "x@1"
    other.input[0].name = "a/x[0]"
    graph.input.append(other.input[0])
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        for name in ("x@1", "a/x[0]"):
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, X)

    (one,) = read_given(InputRequest(given=tmp_path / "x.npz"), graph, input_ports(graph), (0,))

    assert set(one.values) == {"x@1", "a/x[0]"}


def test_input_is_not_saved_over_a_model(save: Save, tmp_path: Path) -> None:
    """Nothing that is read is replaced; the folder must be there."""
    path = save(ONE)
    model = path.rename(tmp_path / "model.npz")

    with pytest.raises(UsageError, match="would replace what is read"):
        check(model, save=model)
    with pytest.raises(UsageError, match="no folder"):
        check(model, save=tmp_path / "none" / "x.npz")
    with pytest.raises(UsageError, match=r"saved as \.npz"):
        check(model, save=tmp_path / "x.json")


def test_nothing_is_saved_when_there_is_no_verdict(save: Save, tmp_path: Path) -> None:
    """No half-written file is left behind."""
    path = save("g (float[2] x) => (float[2] y) <int64[1] s = {3}> { y = Reshape (x, s) }")

    with pytest.raises(VerificationError):
        check(path, save=tmp_path / "x.npz")
    assert [entry.suffix for entry in tmp_path.iterdir()] == [".onnx"]


def test_two_sources_contradict_each_other(tmp_path: Path) -> None:
    """A file and a function, or a file and a range of the same input."""
    with pytest.raises(UsageError, match="not from both"):
        InputRequest(given=tmp_path, function=lambda _: {})


def test_range_of_an_input_that_is_given_is_refused(save: Save, tmp_path: Path) -> None:
    """One of the two would be ignored."""
    np.save(tmp_path / "x.npy", X)

    with pytest.raises(UsageError, match="for which a range is given"):
        check(save(ONE), given=tmp_path / "x.npy", ranges={"x": (0, 1)})


def bomb(path: Path, shape: tuple[int, ...]) -> None:
    """Write a small file that would unpack to zeros of a shape."""
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w", force_zip64=True) as file,
    ):
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for _ in range(math.prod(shape) // (1 << 20)):
            file.write(bytes(1 << 22))


@pytest.mark.parametrize(
    ("model", "message"),
    [("float[2, 3] x", "has the shape [16, 1048576], but [2, 3]"), ("float[N, M] x", "0.1 GB")],
    ids=["stated", "open"],
)
def test_what_unpacks_to_far_more_is_refused_packed(
    save: Save, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, message: str
) -> None:
    """By its shape, or by how much larger it would be; nothing is unpacked."""
    monkeypatch.setattr(files, "_MOST_UNPACKED", 1 << 25)
    monkeypatch.setattr(np, "load", lambda *_, **__: pytest.fail("it was unpacked"))
    bomb(tmp_path / "x.npz", (16, 1 << 20))
    path = save(f"g ({model}) => (float[A, B] y) {{ y = Relu (x) }}")
    with pytest.raises(UsageError) as caught:
        check(path, given=tmp_path / "x.npz")
    assert message in caught.value.message
