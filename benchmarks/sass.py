"""Compare the rule for SASS names (`sptc/isa/sass.py`) with NVIDIA's assembler, for every modelled instruction.

The script needs ptxas and nvdisasm (wheels nvidia-cuda-nvcc and nvidia-cuda-nvdisasm) on PATH or in this environment.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from measure import Row, options, show
from sptc.isa.fragments import a_fragment, accumulator_fragment, b_fragment
from sptc.isa.instructions import Instruction, every_instruction
from sptc.isa.sass import sass_of, sass_of_opcode
from sptc.isa.tcgen05 import KINDS, Opcode, every_opcode

TARGETS = {"sm_80": "sm_80", "sm_86": "sm_86", "sm_89": "sm_89", "sm_90": "sm_90a", "sm_100": "sm_100a",
           "sm_120": "sm_120a"}  # fmt: skip
HEAD = ".version 9.1\n.target {}\n.address_size 64\n"
REGISTERS = ".reg .b32 r<400>; .reg .b64 d<6>; .reg .pred q; ld.param.u64 d0, [p];"
_FENCES = "wgmma.fence.sync.aligned; {} wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"
#: Number of kernels that ptxas assembles in one file.
_PART = 100


def tool(name: str) -> str:
    """Return the path of a tool of the CUDA toolkit. Exit with status 2 if the tool is missing."""
    spec = find_spec("nvidia")
    folders = [Path(folder) / "cu13/bin" for folder in (spec.submodule_search_locations if spec else None) or ()]
    tool_path = next((str(path / name) for path in folders if (path / name).exists()), shutil.which(name))
    if not tool_path:
        print(f"this benchmark needs {name} of the CUDA toolkit", file=sys.stderr)
        sys.exit(2)
    return tool_path


def vector(first: int, count: int) -> str:
    """Return a PTX vector operand: register names in braces."""
    return "{" + ", ".join(f"r{first + place}" for place in range(count)) + "}"


def body(i: Instruction) -> str:
    """Return a PTX kernel that loads the operands, executes the instruction and stores D."""
    d, a = accumulator_fragment(i).registers, a_fragment(i).registers
    loaded = [*range(d * i.c.bits // i.d.bits), *range(200, 200 + a), *range(220, 243)]
    first = 300 if i.family == "mma" else 0
    sparse = ["r240", "0"] if i.sparse else []
    if i.family == "mma":
        operands = [
            vector(300, d),
            vector(200, a),
            vector(220, b_fragment(i).registers),
            vector(0, d * i.c.bits // i.d.bits),
        ]
        operands += [*sparse, *(["r241", "{0, 0}", "r242", "{0, 0}"] if i.scale_size else [])]
    else:
        operands = [vector(0, d), "d1", "d2", *sparse, "1", *([] if i.a.is_integer else ["1", "1"])]
        operands += ["0", "0"] if i.a.bits == 16 else []
    text = f"{i} {', '.join(operands)};"
    lines = [f"ld.global.b32 r{register}, [d0+{4 * register}];" for register in loaded]
    lines += ["ld.global.b64 d1, [d0+2048]; ld.global.b64 d2, [d0+2056];"]
    lines += [text if i.family == "mma" else _FENCES.format(text)]
    return "\n".join([*lines, *(f"st.global.b32 [d0+{4096 + 4 * place}], r{first + place};" for place in range(d))])


def body_of_opcode(opcode: Opcode) -> str:
    """Return the body of a PTX kernel that executes a ``tcgen05.mma`` with arbitrary operands from memory."""
    operands = ["[r0]", "d1", "d2", *(["[r1]"] if opcode.sparse else []), "r2"]
    operands += ["[r3]", "[r4]", "q"] if KINDS[opcode.kind].scales else ["q"]
    loads = " ".join(f"ld.global.b32 r{place}, [d0+{4 * place}];" for place in range(6))
    loads += " ld.global.b64 d1, [d0+64]; ld.global.b64 d2, [d0+72]; setp.ne.b32 q, r0, 0;"
    return f"{loads} {opcode} {', '.join(operands)};"


def disassembled(bodies: list[str], target: str, folder: Path) -> list[list[str]]:
    """Return the names of the tensor-core instructions in the SASS of each kernel."""
    kernels = [
        f".visible .entry k{n}(.param .u64 p)\n{{\n{REGISTERS}\n{text}\nret;\n}}" for n, text in enumerate(bodies)
    ]
    (folder / "k.ptx").write_text(HEAD.format(target) + "\n".join(kernels))
    command = [tool("ptxas"), f"-arch={target}", folder / "k.ptx", "-o", folder / "k.cubin"]
    subprocess.run(command, check=True, capture_output=True)
    text = subprocess.run(
        [tool("nvdisasm"), "-c", folder / "k.cubin"], capture_output=True, text=True, check=True
    ).stdout
    names: dict[int, list[str]] = {}
    kernel = -1
    for line in text.splitlines():
        if start := re.match(r"\s*\.text\.k(\d+):", line):
            kernel = int(start[1])
        if kernel >= 0 and (name := re.search(r"\*/\s+(?:@!?U?P\w+\s+)?((?:UTC)?[HIQO]G?MMA[\w.]*)", line)):
            names.setdefault(kernel, []).append(name[1])
    return [names.get(place, []) for place in range(len(bodies))]


def measured(arch: str, folder: Path, most: int) -> Iterator[tuple[str, list[str], tuple[str, int]]]:
    """Yield each instruction, the SASS names that ptxas emits, and the result of :func:`~sptc.isa.sass.sass_of`."""
    every = [i for i in every_instruction() if arch in i.architectures and (i.family == "mma" or i.n in (8, 64, 256))]
    opcodes = {cta: [o for o in every_opcode() if o.cta_group == cta and arch == "sm_100"] for cta in (1, 2)}
    parts = [every[start : start + _PART] for start in range(0, min(len(every), most), _PART)]
    for part in parts:
        texts = disassembled([body(i) for i in part[:most]], TARGETS[arch], folder)
        yield from ((str(i), names, sass_of(i, arch)) for i, names in zip(part, texts, strict=False))
    for group in opcodes.values():
        if group:
            texts = disassembled([body_of_opcode(opcode) for opcode in group], TARGETS[arch], folder)
            yield from ((str(o), names, (sass_of_opcode(o), 1)) for o, names in zip(group, texts, strict=True))


def main() -> None:
    """Compare the SASS names of all instructions, print the figures, and with ``--write`` write the table of names."""
    parser = options(__doc__)
    parser.add_argument(
        "--write", type=Path, metavar="FILE.csv", help="write architectures, SASS names and instructions to this file"
    )
    arguments = parser.parse_args()
    rows, table = [], {}
    with tempfile.TemporaryDirectory() as folder:
        for arch in list(TARGETS)[: 1 if arguments.small else None]:
            results = list(measured(arch, Path(folder), 20 if arguments.small else 1 << 30))
            wrong = [text for text, names, (name, count) in results if names != [name] * count]
            rows.append(Row(f"{arch}: instructions", "", len(results)))
            rows.append(
                Row(f"{arch}: instructions whose SASS names differ from the rule", "", len(wrong), ", ".join(wrong[:3]))
            )
            for text, names, _ in results:
                table.setdefault((text, "+".join(names)), []).append(arch)
    if arguments.write:
        lines = [f"{' '.join(arches)},{names},{text}\n" for (text, names), arches in table.items()]
        arguments.write.write_text("architectures,names,instruction\n" + "".join(lines), encoding="utf-8")
    show(rows, arguments.json)


if __name__ == "__main__":
    main()
