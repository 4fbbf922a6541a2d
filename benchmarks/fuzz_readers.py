"""Readers of untrusted files that `fuzz.py` fuzzes, each with valid files from which the fuzzer starts."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sptc.cli.configuration import read_configuration
from sptc.errors import Error
from sptc.gemm.options import read_way
from sptc.gemm.sources import read_factor
from sptc.gemm.tile_file import load as load_tile
from sptc.gemm.tile_file import tile_matrix
from sptc.gpu.ptx import kernel
from sptc.isa.column_mask import decode_column_mask
from sptc.isa.instruction_descriptor import decode_instruction_descriptor
from sptc.isa.matrix_moves import every_matrix_move, parse_matrix_move
from sptc.isa.memory import decode_descriptor
from sptc.isa.metadata import GRANULARITIES
from sptc.isa.names import completed_name, forms_named, nearest_name, resolve, subject_named, subject_of_line
from sptc.isa.pasted_line import operand_roles, paste
from sptc.isa.sass import implementations, sass_name
from sptc.isa.tcgen05 import every_opcode
from sptc.kernels.launch import run_kernel
from sptc.kernels.launch_file import read_launch
from sptc.kernels.ptx import parse_ptx
from sptc.kernels.summary import summaries
from sptc.rtl.config import PRESETS
from sptc.sim.coverage.code import CodeCoverage
from sptc.sim.coverage.groups import Coverage
from sptc.synth.energy.electrical import CellLibrary
from sptc.synth.liberty import Library
from sptc.tensors.checkpoints import Checkpoint, contents, pack, read_compressed
from sptc.tensors.files import write_tensors
from sptc.tensors.software_formats import SOFTWARE_FORMATS, PackingOptions
from sptc.tensors.sparsify import sparsify
from sptc.verify.campaign import StateFolder
from sptc.verify.conformance import read_pack, read_results
from sptc.verify.recorder import judge_record, read_record
from sptc.verify.register_file import read, shipped, write
from sptc.verify.report_files import read_findings

__all__ = ["READERS", "Reader"]

F16 = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"
WGMMA = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
#: Maximum number of thread instructions of a fuzzed kernel, and of executions of an instruction in a fuzzed .npz file.
INSTRUCTIONS, CASES = 20_000, 2
#: A fuzzed text is searched among all instruction names only if its length is a multiple of 32; a search takes 0.1 s.
_SHARE_OF_SEARCHES = 32


@dataclass(frozen=True)
class Reader:
    """A file reader, which may raise `sptc.Error` and no other exception."""

    read: Callable[[Path], object]
    file: str  #: Name of the file to read; the suffix of the name selects the file format
    seeds: Callable[[Path], Iterator[bytes]]  #: Returns valid file contents; the argument is an empty scratch folder


def _attempts(*calls: Callable[[], object]) -> None:
    """Call each of the given functions, and ignore every `Error` that a call raises."""
    for call in calls:
        with suppress(Error):
            call()


def _saved(folder: Path, save: Callable[..., object], *arrays: Any, **named: Any) -> bytes:
    path = folder / ("x.npz" if named else "x.npy")
    save(path, *arrays, **named)
    return path.read_bytes()


def _instruction(path: Path) -> None:
    text = path.read_bytes().decode(errors="replace")

    def by_line() -> None:
        if line := paste(text):
            subject = subject_of_line(line)
            operand_roles(line, subject.instruction, subject.opcode)

    def by_machine_name() -> None:
        if name := sass_name(text):
            [*implementations(name)]

    _attempts(partial(subject_named, text), by_line, partial(parse_matrix_move, text), partial(completed_name, text))
    if len(text) % _SHARE_OF_SEARCHES == 0:
        _attempts(partial(resolve, text), partial(forms_named, text), partial(nearest_name, text), by_machine_name)


def _instructions(_: Path) -> Iterator[bytes]:
    operands = "{%r0, %r1, %r2, %r3}"
    yield F16.encode()
    yield f"{F16} {operands}, {operands}, {operands}, {operands}, %r4, 0x0;".encode()
    yield f"{WGMMA} {operands}, %rd1, %rd2, %r4, 0, 1, 1, 1, 0, 0;".encode()
    yield b"tcgen05.mma.sp.cta_group::1.kind::f16 [%r1], %rd1, %rd2, [%r2], 0x8400010, p;"
    yield b"tcgen05.mma.ws.cta_group::1.kind::i8.collector::b0::fill (m128n64k32.s32.s8.u8)"
    yield from (b"m16n8k32 f16 sparse", b"HMMA.SP.16832.F32", b"UTCQMMA.2CTA")
    yield from (str(move).encode() for move in every_matrix_move()[::5])


def _descriptors(path: Path) -> None:
    values = np.frombuffer(path.read_bytes()[:48].ljust(48, b"\0"), "<u8").tolist()
    opcodes = [*every_opcode()]
    opcode = opcodes[values[0] % len(opcodes)]
    calls = [partial(decode_descriptor, value, family) for value in values[:3] for family in ("wgmma", "tcgen05")]
    calls.append(partial(decode_column_mask, values[3], 64, 128, values[4] % 64, "x"))
    _attempts(*calls, partial(decode_instruction_descriptor, opcode, values[5] & 0xFFFFFFFF))


def _numbers(_: Path) -> Iterator[bytes]:
    yield np.array([3, 1 << 46 | 1 << 62 | 128 << 16, 256 << 32, (1 << 36) - 1, 7, 0x8400010], "<u8").tobytes()


def _kernel(path: Path) -> None:
    text = path.read_bytes().decode(errors="replace")
    summaries(text)
    for name, module in parse_ptx(text).items():
        arguments = [np.zeros(512, np.uint32) if each.size == 8 else 1 for each in module.parameters]
        run = partial(run_kernel, text, 1, 32, arguments, entry=name, backend="golden", shared=4096)
        _attempts(partial(run, limit=INSTRUCTIONS))


def _kernels(_: Path) -> Iterator[bytes]:
    for text in (F16, WGMMA):
        file = next(read(path) for path in shipped() if path.name.startswith(text.partition(".")[0]))
        yield kernel(resolve(text).instruction, "sm_90", file.immediates).encode()  # type: ignore[attr-defined]
    yield b"""\
.version 8.7
.target sm_90a
.address_size 64
.const .align 4 .b32 table[4] = {0x10, 2, 30, -4};
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 r) f(.param .b32 x) { ret; }
.visible .entry k(.param .u64 p, .param .align 8 .b8 q[16]) .maxntid 128, 1, 1
{
  .reg .pred %p<8>; .reg .b16 %h<4>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>;
  .shared .align 8 .b8 s[1024];
  ld.param.u64 %rd1, [p]; mov.u32 %r0, %tid.x; mad.wide.u32 %rd1, %r0, 4, %rd1;
  mov.u64 %rd4, table; ld.const.u32 %r2, [%rd4+4]; prmt.b32 %r3, %r2, 0, 0x4c01;
  mov.u32 %r5, s; st.shared.v4.b32 [%r5], {%r2, %r3, %r2, %r3}; bar.sync 0;
  mbarrier.init.shared.b64 [%r5], 1; fma.rn.f32 %f1, %f2, 0f40000000, %f1;
  cp.async.cg.shared.global [%r5], [%rd1], 16; cp.async.wait_all;
  ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r6, %r7}, [%r5];
  setp.lt.s32 %p1, %r0, 7;
$L1: @%p1 bra $L2; shfl.sync.bfly.b32 %r8, %r2, 1, 31, -1; /* all */
$L2: st.global.u32 [%rd1], %r2; ret;
}
"""


def _launch(path: Path) -> None:
    launch = read_launch(path)
    module = ".version 8.7\n.target sm_90\n.visible .entry k(.param .u64 p) { ret; }"
    launch.run(module, backend="golden", limit=INSTRUCTIONS)


def _launches(_: Path) -> Iterator[bytes]:
    arrays = {"a": {"zeros": "float16", "shape": [64, 64]}, "b": {"zeros": "float8_e4m3fn", "shape": [64]}}
    tile = {"map": "a", "box": [64, 8], "swizzle": "128B", "fill": "zeros", "shape": [64, 64], "strides": [2, 128]}
    whole = {"entry": "k", "grid": [2, 1, 1], "block": 32, "cluster": [2, 1, 1], "shared": 64}
    yield json.dumps(whole | {"arrays": arrays, "arguments": [{"array": "a"}, tile, 1, 2.5]}).encode()
    stored = {"a": {"file": "b.npy"}, "c": {"file": "c.npz", "tensor": "a"}}
    yield json.dumps({"grid": 1, "block": 32, "arrays": stored, "arguments": [{"array": "a"}]}).encode()
    yield json.dumps({"grid": 1, "block": 32, "arrays": arrays, "arguments": [{"array": "a"}]}).encode()


def _register_file(path: Path) -> None:
    def run() -> None:
        file = read(path)
        if file.cases <= CASES:
            file.run()

    def unpacked() -> None:
        tile = load_tile(path)
        for name in ("a", "b", "c", "d") if np.size(tile.get("smem", 0)) < 1 << 20 else ():
            _attempts(partial(tile_matrix, path, name))

    _attempts(run, unpacked, partial(read_results, path, (1, 32, 4)))


def _register_files(folder: Path) -> Iterator[bytes]:
    starts = ("mma.sp.m16n8k32", "mma.m16n8k16.f32.f16", "wgmma.sp.m64n8k")
    for start in starts:
        path = next(path for path in shipped() if path.name.startswith(start))
        write(folder / "x.npz", read(path).take(np.array([0])))
        yield (folder / "x.npz").read_bytes()
    words = np.full((32, 4), 0x44444444, np.uint32)
    tile = {"instruction": F16, "a": words, "b": words[:, :4], "c": words, "e": words[:, 0], "sparsity_selector": 0}
    yield _saved(folder, np.savez, **tile)
    tmem, smem = np.zeros((1, 128, 512), np.uint32), np.zeros((1, 4096), np.uint8)
    opcode = "tcgen05.mma.sp.cta_group::1.kind::f16"
    words = {"tmem": tmem, "smem": smem, "idesc": 0x8400014, "d": 256, "a": 0, "b": 1 << 46, "e": 64}
    yield _saved(folder, np.savez_compressed, instruction=opcode, **words)


def _matrix(path: Path) -> None:
    for read_one in contents(path).values():
        _attempts(read_one)
    _attempts(partial(read_factor, path), partial(read_factor, path, "a"))
    _attempts(*(partial(read_compressed, path, name) for name in SOFTWARE_FORMATS))


def _values() -> np.ndarray:
    values = np.arange(512, dtype=np.float32).reshape(16, 32)
    values.reshape(16, 8, 4)[..., 2:] = 0
    return values


def _single_arrays(folder: Path) -> Iterator[bytes]:
    for array in (_values(), _values().T, _values().astype(">f2"), np.zeros((3, 0), np.int8), np.array(1)):
        yield _saved(folder, np.save, array)


def _compressed(folder: Path, suffix: str) -> Iterator[bytes]:
    """Yield, for each storage format of sparse software, the contents of a file with a compressed matrix."""
    for name in SOFTWARE_FORMATS:
        try:
            compressed = sparsify(_values().astype(np.float16), GRANULARITIES["2:4"])
            arrays, text = pack(Checkpoint(compressed), name, PackingOptions())
        except Error:
            continue
        write_tensors(folder / f"x{suffix}", {f"w.{key}": array for key, array in arrays.items()}, text)
        yield (folder / f"x{suffix}").read_bytes()


def _archives(folder: Path) -> Iterator[bytes]:
    yield _saved(folder, np.savez, a=_values(), b=_values().T)
    yield _saved(folder, np.savez_compressed, a=_values(), __metadata__=np.array('{"types": "{\\"a\\": \\"int32\\"}"}'))
    yield from _compressed(folder, ".npz")


def _safetensors(folder: Path) -> Iterator[bytes]:
    from safetensors.numpy import save

    yield save({"weight": _values(), "bias": _values()[0].astype(np.float16)}, {"format": "pt"})
    yield from _compressed(folder, ".safetensors")


def _torch_files(folder: Path) -> Iterator[bytes]:
    import torch

    weight = torch.from_numpy(_values())
    for content in (weight, {"w": weight.bfloat16(), "inner": {"x": weight.T, "p": torch.nn.Parameter(weight[0])}}):
        torch.save(content, folder / "x.pt")
        yield (folder / "x.pt").read_bytes()


def _configurations(_: Path) -> Iterator[bytes]:
    from dataclasses import asdict

    yield from (json.dumps(asdict(config)).encode() for config in PRESETS.values())


def _liberty(path: Path) -> None:
    library = Library.read(path)
    _attempts(*(partial(getattr, library, name) for name in ("cells", "corner", "full_adder")))
    CellLibrary.of(library)


def _liberty_files(_: Path) -> Iterator[bytes]:
    delay = 'cell_rise (t) { index_1 ("0, 1"); values ("0.1, 2"); }'
    timing = f'timing () {{ related_pin : "A"; timing_sense : non_unate; {delay} }}'
    power = 'internal_power () { related_pin : "A"; rise_power (scalar) { values ("0.25"); } }'
    cells = [
        f"cell ({name}) {{ area : {area}; cell_leakage_power : 2; {more} pin (A) {{ direction : input; capacitance : 1;"
        f' }} pin (Y) {{ direction : output; function : "{function}"; max_capacitance : 9; {timing} {power} }} }}'
        for name, area, function, more in (
            ("INV", 2, "!A", ""),
            ("NAND2", 4, "!(A B)", "pin (B) { direction : input; }"),
            ("FLOP", 16, "IQ", 'ff (IQ, IQN) { next_state : "A"; clocked_on : "K"; } pin (K) { direction : input; }'),
        )
    ]
    head = 'delay_model : table_lookup; time_unit : "1ns"; capacitive_load_unit (1, pf); leakage_power_unit : "1nW";'
    template = 'lu_table_template (t) { variable_1 : total_output_net_capacitance; index_1 ("0, 1"); }'
    yield "\n".join(["/* few */ library (x) {", head, "nom_voltage : 2.0;", template, *cells, "}\n"]).encode()


def _ways(_: Path) -> Iterator[bytes]:
    instruction = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    way = {"instruction": instruction, "split_k": [1, 1], "swapped": False, "order": "tree", "promote": 1, "tile": 1}
    yield json.dumps({"exact": True, "way": way}).encode()
    yield json.dumps({"instruction": instruction, "k_order": "descending", "result": "f16", "interleave": 2}).encode()


def _results(path: Path) -> None:
    _attempts(partial(read_results, path, (1, 32, 4)))
    record = read_record(path)
    [*judge_record(path, record, lambda target, seed, rows: [])] if not record["rows"] else None


def _result_files(_: Path) -> Iterator[bytes]:
    yield "\n".join(f"{number:08x}" for number in range(128)).encode()
    yield json.dumps(np.zeros((1, 32, 4), int).tolist()).encode()
    row = {"name": F16, "selector": 0, "operands": "0", "sha256": "0", "d": ""}
    fields = {"target": "sm_90a", "seed": 1, "sptc": "0.1.0", "gpu": {"name": "x"}, "rows": [row]}
    yield json.dumps({"format": "sptc gpu record 1", **fields}).encode()


def _packs(folder: Path) -> Iterator[bytes]:
    path = next(path for path in shipped() if path.name.startswith("mma.sp.m16n8k16"))
    file = read(path).take(np.array([0]))
    write(folder / "x.npz", file, conformance=json.dumps({"seed": 1, "candidates": 2, "neighbours": []}))
    yield (folder / "x.npz").read_bytes()


def _report(path: Path) -> None:
    read_findings(path.parent)


def _reports(_: Path) -> Iterator[bytes]:
    case = '<testcase classname="a.b" name="c" time="0.5"><failure message="m">text</failure></testcase>'
    seed = '<properties><property name="seed" value="3"/></properties>'
    yield f'<?xml version="1.0"?><testsuites><testsuite name="s">{seed}{case}</testsuite></testsuites>'.encode()
    yield b'[{"name": "n", "unit": "s", "value": 1.5}]'
    fault = {"preset": "tiny", "top": "row", "command": "c", "verdict": "killed", "number": 1}
    yield b'{"faults": 1}\n' + json.dumps([fault]).encode() + b"\n"
    proof = {"property": "p", "parameters": "n = 2", "result": "failed", "seconds": 1, "statement": "s"}
    yield json.dumps({"proofs": [proof | {"counterexample": [{"x": 1}]}], "proved": 0, "failed": 1}).encode()
    outcome = {"file": "a/b.py", "passed": 3, "failed": ["x"], "skipped": {"y": "r"}, "seconds": 2.5, "seed": 4}
    yield json.dumps(outcome).encode()
    area = {
        "configuration": {"name": "x"},
        "unit": {"area": 2},
        "units": {"area": "um2"},
        "array": {"sum": {"area": 3}},
    }
    more = dict.fromkeys(
        ("unit_with_full_adders", "dense_unit", "dense_unit_with_full_adders", "warp", "sparsity_percent")
    )
    yield json.dumps(area | more).encode()


def _coverage(path: Path) -> None:
    _attempts(lambda: Coverage.read(path).table(), lambda: CodeCoverage.read(path).table())


def _coverage_files(folder: Path) -> Iterator[bytes]:
    Coverage().write(folder / "x.json")
    yield (folder / "x.json").read_bytes()
    group = {"configuration": "tiny", "name": "n", "meaning": "m", "axes": [{"name": "x", "labels": ["0", "1"]}]}
    group |= {"unreachable": [{"reason": "r", "bins": [[0, 0]]}], "hits": [[0, 2]]}
    yield json.dumps({"kind": "sptc coverage", "version": 1, "groups": [group]}).encode()
    yield b"# SystemC::Coverage-3\nC '\x01t\x02line\x01h\x02top\x01l\x0212\x01o\x02block' 3\n"


def _state(path: Path) -> None:
    with closing(StateFolder(path.parent)) as state:
        [*state.records()]


def _states(folder: Path) -> Iterator[bytes]:
    with closing(StateFolder(folder)) as state:
        state.begin({"seed": 1, "arch": ["sm_80"]})
        state.add(0, {"instruction": F16, "a_from": None, "mismatches": 0}, None)
        state.write(None)
    with closing(sqlite3.connect(folder / "campaign.db")) as database:
        database.execute("PRAGMA journal_mode = DELETE")
    yield (folder / "campaign.db").read_bytes()


#: File readers to fuzz, by name.
READERS = {
    "instruction": Reader(_instruction, "line.txt", _instructions),
    "descriptor": Reader(_descriptors, "words.bin", _numbers),
    "kernel": Reader(_kernel, "kernel.ptx", _kernels),
    "launch": Reader(_launch, "launch.json", _launches),
    "register-file": Reader(_register_file, "registers.npz", _register_files),
    "pack": Reader(read_pack, "pack.npz", _packs),
    "npy": Reader(_matrix, "matrix.npy", _single_arrays),
    "npz": Reader(_matrix, "matrices.npz", _archives),
    "safetensors": Reader(_matrix, "weights.safetensors", _safetensors),
    "pt": Reader(_matrix, "weights.pt", _torch_files),
    "configuration": Reader(read_configuration, "config.json", _configurations),
    "liberty": Reader(_liberty, "cells.lib", _liberty_files),
    "way": Reader(read_way, "way.json", _ways),
    "results": Reader(_results, "results.json", _result_files),
    "report": Reader(_report, "report.xml", _reports),
    "coverage": Reader(_coverage, "coverage.json", _coverage_files),
    "state": Reader(_state, "campaign.db", _states),
}
