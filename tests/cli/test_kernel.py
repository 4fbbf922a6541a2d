"""``sptc kernel`` runs and shows kernels in files, and rejects invalid launches."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from sptc.tests.cli.command_line import CommandLine
from sptc.tests.kernels.recorded import recorded

COMMAND = "kernel"


@pytest.fixture(autouse=True)
def _launch(cli: CommandLine) -> None:
    recorded("triton.small.mma").write(Path())


def test_run(cli: CommandLine) -> None:
    report = cli.json("run", "matmul.ptx", "--launch", "launch.json", "-o", "out.npz", "--limit", 10**6)
    np.testing.assert_array_equal(np.load("out.npz")["argument2"], recorded("triton.small.mma").expected)
    assert (report["kernel"], report["ctas"], report["threads"], report["findings"]) == ("matmul", 4, 32, [])
    assert report["instructions"] > 10_000
    assert report["opcodes"]["mma"] > 0
    text = cli.text("run", "matmul.ptx", "--launch", "launch.json", "--timing")
    assert text.startswith("matmul: 4 CTAs of 32 threads; ")
    assert report["cycles"] == 96
    assert text.splitlines()[-1].endswith("register file 96; bound by the shared memory")
    kernel = recorded("triton.tma.f16")
    kernel.write(Path())
    cli.json("run", "matmul.ptx", "--launch", "launch.json", "-o", "out.npz")  # a kernel with tensor maps
    np.testing.assert_array_equal(np.load("out.npz")[f"argument{kernel.result}"], kernel.expected)


def test_findings_are_a_status_and_annotations(cli: CommandLine) -> None:
    kernel = recorded("cuda_wgmma_sp_sm90")
    kernel.write(Path())
    Path("matmul.ptx").write_text(kernel.ptx.replace("wgmma.wait_group.sync.aligned", "wgmma.fence.sync.aligned; //"))
    output, errors = cli.streams("run", "matmul.ptx", "--launch", "launch.json", "--github", status=1)
    assert "the instruction accesses registers of a wgmma before wgmma.wait_group; undefined by PTX" in output
    assert errors.startswith("::warning file=matmul.ptx,line=")


def test_show(cli: CommandLine) -> None:
    (kernel,) = cli.json("show", "matmul.ptx")["kernels"]
    assert (kernel["name"], kernel["target"], kernel["block"]) == ("matmul", "sm_90a", [32])
    assert "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" in kernel["opcodes"]["tensor cores"]
    assert cli.text("show", "matmul.ptx").splitlines()[-1] == "  all instructions are modelled"
    Path("matmul.ptx").write_text(recorded("triton.small.mma").ptx.replace("aligned.m8n8.x4", "aligned.m16n16.x4"))
    assert "not modelled: line " in cli.text("show", "matmul.ptx")
    Path("matmul.ptx").write_text(recorded("triton.e4m3").ptx)
    text = "B of wgmma: leading offset 0, stride offset 1024, swizzle 128B"
    assert text in cli.json("show", "matmul.ptx")["kernels"][0]["opcodes"]["descriptors"]
    assert f"1 x {text}  line 522" in cli.text("show", "matmul.ptx")


def test_arrays_of_any_name_are_written(cli: CommandLine) -> None:
    """Each array is written after the run, even if it is not an argument or has the name of a parameter of numpy."""
    launch = json.loads(Path("launch.json").read_text())
    arrays = {"unused": {"zeros": "int32", "shape": [4]}, "file": {"zeros": "int8", "shape": [2]}}
    Path("launch.json").write_text(json.dumps(launch | {"arrays": launch["arrays"] | arrays}))
    cli.text("run", "matmul.ptx", "--launch", "launch.json", "-o", "out.npz")
    with np.load("out.npz") as written:
        np.testing.assert_array_equal(written["argument2"], recorded("triton.small.mma").expected)
        assert [written[name].tolist() for name in arrays] == [[0] * 4, [0] * 2]
    Path("launch.json").write_text(json.dumps(launch | {"arrays": launch["arrays"] | {"__metadata__": arrays["file"]}}))
    words = ("run", "matmul.ptx", "--launch", "launch.json", "-o")
    assert "x.npz cannot hold a tensor named '__metadata__'" in cli.streams(*words, "x.npz", status=2)[1]
    Path("out.npz").chmod(0o444)
    Path("launch.json").write_text(json.dumps(launch))
    cli.refuses(*words, "out.npz", "--limit", 1, message="out.npz cannot be written (the file is read-only)")


def test_bad_launches(cli: CommandLine) -> None:
    launch = json.loads(Path("launch.json").read_text())
    for changes, message in (
        ({"arrays": []}, "'arrays' must be an object, and 'arguments' must be a list"),
        ({"arrays": {"a": {"zeros": "float16"}}}, "array 'a' must have the key 'file', or 'file' and"),
        ({"arrays": {"a": {"zeros": "float16", "shape": [-1]}}}, "the shape of array 'a' must be a list"),
        ({"arrays": {name: {"zeros": "int8", "shape": [3 << 27]} for name in "ab"}},
         "array 'b' is too large: the arrays take more than 1 GiB: set SPTC_ARCHIVE_GIB to another limit in GiB"),
        ({"arrays": {"a": {"file": "none.npy"}}}, "none.npy"),
        ({"arguments": [{"array": "x"}]}, "argument 0 names the array 'x', which is not a key of 'arrays'"),
        ({"arguments": [{"map": "argument0", "box": [16], "shape": 3}]},
         "the shape of argument 0 must be a list of int"),
        ({"arrays": {"a": {"zeros": "float16", "shape": [1] * 99}}}, "list of at most 32 integers above 0"),
        *(({"arrays": {"a": {"zeros": name, "shape": [1]}}}, f"'{re.escape(name)}' is not an element type of numpy")
          for name in (",", "(9,f4", "float8_e,m3fn")),
        ({"arrays": {"a": {"zeros": "object", "shape": [1]}}}, "elements of array 'a' must be numbers, not object"),
        ({"arrays": {"a": {"file": "a.npz", "tensor": 3}}}, "'file' and 'tensor' of array 'a' must be strings"),
        ({"arguments": [{"array": []}]}, "argument 0 names the array .*, which is not a key of 'arrays'"),
        ({"arguments": ["x"]}, "argument 0 must be a number, an array, a tensor map or a structure, not 'x'"),
        ({"arguments": [{"struct": "0g"}]}, "argument 0 needs a 'struct' of hexadecimal bytes, and 'pointers'"),
        ({"arguments": []}, "takes \\d+ arguments, not 0"),
        ({"shared": "many"}, "'shared' must be a number of bytes"),
        ({"other": 1}, "must be a JSON object with the keys grid, block, arrays and arguments"),
    ):  # fmt: skip
        Path("launch.json").write_text(json.dumps(launch | changes))
        _, errors = cli.streams("run", "matmul.ptx", "--launch", "launch.json", status=2)
        assert errors.startswith("sptc kernel run: ")
        assert re.search(message, errors), errors


def test_bad_files(cli: CommandLine) -> None:
    cli.refuses_each(
        (["run", "none.ptx", "--launch", "launch.json"], "none.ptx"),
        (["run", "launch.json", "--launch", "launch.json"], "the text is not PTX: .version or .target is missing"),
        (["run", "matmul.ptx", "--launch", "matmul.ptx"], "matmul.ptx is not JSON"),
        (["run", "matmul.ptx", "--launch", "launch.json", "--limit", "100"], "has not ended within the limit"),
        (["run", "matmul.ptx", "--launch", "launch.json", "-o", "out.txt"], "out.txt"),
    )
    assert not Path("out.npz").exists()
