"""PTX text of kernels that execute one instruction on registers loaded from memory.

The threads of a case load their registers, execute the instruction once, and store D. Arrays have the layout of
:func:`sptc.mma` and :func:`sptc.wgmma`, one case after another. ``wgmma`` runs with one case per CTA: the case's image
is copied into shared memory, and its start address is added to the descriptors.
"""

from collections.abc import Iterable, Iterator

from ..isa.formats import FORMATS
from ..isa.fragments import a_fragment, accumulator_fragment, b_fragment
from ..isa.instructions import Instruction
from ..isa.operands import Immediates

__all__ = [
    "ENTRY",
    "PARAMETERS",
    "VERSION",
    "copied_image",
    "group",
    "indented",
    "kernel",
    "moved_descriptors",
    "target",
    "version_and_target",
]

ENTRY = "run"
#: First PTX version that has most tensor-core instructions (CUDA 12.8), and first PTX version that has all.
VERSION, _NEWEST_VERSION = "8.7", "9.1"
_NEWEST_SCALES = 4
_WORD_BYTES = 4
#: Architectures with instructions that need an architecture-specific target (``sm_90a``).
_SPECIFIC = ("sm_90", "sm_100", "sm_101", "sm_103", "sm_110", "sm_120", "sm_121")
#: For each assembler target that PTX version :data:`VERSION` lacks: the first PTX version that has the target.
_VERSIONS = {"sm_103a": "8.8", "sm_121a": "8.8", "sm_110a": "9.0"}
#: Parameters that every kernel has, as PTX text.
PARAMETERS = """\
  .param .u64 a, .param .u64 b, .param .u64 c, .param .u64 e, .param .u64 scale_a, .param .u64 scale_b, .param .u64 d,
  .param .u64 descriptor_a, .param .u64 descriptor_b, .param .u32 image_bytes, .param .u32 threads"""


def target(arch: str) -> str:
    """Return the assembler target of an architecture, for example ``sm_90a`` for ``sm_90``."""
    return f"{arch}a" if arch in _SPECIFIC else arch


def version_and_target(name: str, least: str = VERSION) -> str:
    """Return the first lines of a PTX module for an assembler target, with a PTX version of at least `least`."""
    return f".version {max(least, _VERSIONS.get(name, VERSION))}\n.target {name}"


def kernel(instruction: Instruction, arch: str, immediates: Immediates) -> str:
    """Return the PTX text of a kernel for one ``mma`` or ``wgmma``.

    `arch` is an architecture, or a target that shares its numerics. The entry of the module is :data:`ENTRY`. Its
    parameters: addresses of A, B, C, E, the scale data of A and B, and D (0 for operands that do not exist), the
    descriptors of A and B (64 bits each), bytes per image, and threads.

    Source: PTX ISA 9.7.14.5 and 9.7.14.6 (mma), 9.7.15.5 and 9.7.15.6 (wgmma: fences, commit and wait around it).
    """
    newest = instruction.kind == "mxf4nvf4" and instruction.scale_format is FORMATS["ue8m0"]
    version = _NEWEST_VERSION if newest and instruction.scale_size == _NEWEST_SCALES else VERSION
    body = _warpgroup(instruction, immediates) if instruction.family == "wgmma" else _warp(instruction, immediates)
    shared = ".extern .shared .align 1024 .b8 image[];\n" if instruction.family == "wgmma" else ""
    return f"""\
{version_and_target(target(arch), version)}
.address_size 64
{shared}\
.visible .entry {ENTRY}(
{PARAMETERS})
{{
  .reg .pred %outside, %adds, %more;
  .reg .b32 %thread, %cta, %local, %size, %limit, %offset, %first, %bytes;
  .reg .b64 %address, %wide, %global_image, %place, %start;
{indented(body)}
done:
  ret;
}}
"""


def indented(lines: Iterable[str]) -> str:
    """Join and indent the lines of a kernel body. Labels are not indented."""
    return "\n".join(line if line.endswith(":") else f"  {line}" for line in lines)


def _thread() -> Iterator[str]:
    yield "mov.u32 %cta, %ctaid.x;"
    yield "mov.u32 %size, %ntid.x;"
    yield "mov.u32 %local, %tid.x;"
    yield "mad.lo.u32 %thread, %cta, %size, %local;"
    yield "ld.param.u32 %limit, [threads];"
    # Only whole warps exit at this branch, since `threads` is a multiple of the number of threads in a warp.
    yield "setp.ge.u32 %outside, %thread, %limit;"
    yield "@%outside bra done;"


def _load(name: str, count: int) -> Iterator[str]:
    """Yield code by which each thread loads its registers of one operand."""
    yield f".reg .b32 %{name}<{count}>;"
    yield from _address(name, count)
    for index in range(count):
        yield f"ld.global.b32 %{name}{index}, [%address+{_WORD_BYTES * index}];"


def _store(source: str, count: int) -> Iterator[str]:
    yield from _address("d", count)
    for index in range(count):
        yield f"st.global.b32 [%address+{_WORD_BYTES * index}], %{source}{index};"


def _address(name: str, count: int) -> Iterator[str]:
    yield f"ld.param.u64 %address, [{name}];"
    yield f"mul.wide.u32 %wide, %thread, {_WORD_BYTES * count};"
    yield "add.u64 %address, %address, %wide;"


def group(name: str, count: int) -> str:
    """Return numbered registers as one vector operand, ``{%name0, %name1}``."""
    return f"{{{', '.join(f'%{name}{index}' for index in range(count))}}}"


def _warp(instruction: Instruction, immediates: Immediates) -> Iterator[str]:
    counts = {"a": a_fragment(instruction).registers, "b": b_fragment(instruction).registers}
    counts["c"] = accumulators = accumulator_fragment(instruction).registers
    counts |= {"e": 1} if instruction.sparse else {}
    counts |= {"scale_a": 1, "scale_b": 1} if instruction.scale_size else {}
    yield from _thread()
    for name, count in counts.items():
        yield from _load(name, count)
    yield f".reg .b32 %result<{accumulators}>;"
    operands = [group("result", accumulators), *(group(name, counts[name]) for name in ("a", "b", "c"))]
    if instruction.sparse:
        operands += ["%e0", f"0x{immediates.sparsity_selector:x}"]
    if instruction.scale_size:
        byte_a, thread_a, byte_b, thread_b = immediates.scale_ids
        operands += ["%scale_a0", f"{{{byte_a}, {thread_a}}}", "%scale_b0", f"{{{byte_b}, {thread_b}}}"]
    yield f"{instruction} {', '.join(operands)};"
    yield from _store("result", accumulators)


def _warpgroup(instruction: Instruction, immediates: Immediates) -> Iterator[str]:
    yield from _thread()
    accumulators = accumulator_fragment(instruction).registers
    yield from _load("c", accumulators)
    a = "%descriptor_a"
    if immediates.a_in_registers:
        count = a_fragment(instruction).registers
        yield from _load("a", count)
        a = group("a", count)
    yield from copied_image(instruction.threads)
    yield from moved_descriptors(("b",) if immediates.a_in_registers else ("a", "b"))
    operands = [group("c", accumulators), a, "%descriptor_b"]
    if instruction.sparse:
        yield from _load("e", 1)
        operands += ["%e0", f"0x{immediates.sparsity_selector:x}"]
    operands += ["%adds"]
    if not instruction.a.is_integer:
        operands += [str(scale) for scale in immediates.imm_scale]
    if instruction.container_bits == 16:
        operands += [str(trans) for trans in immediates.imm_trans[immediates.a_in_registers :]]
    yield f"setp.ne.u32 %adds, {int(immediates.scale_d)}, 0;"
    yield "wgmma.fence.sync.aligned;"
    yield f"{instruction} {', '.join(operands)};"
    yield "wgmma.commit_group.sync.aligned;"
    yield "wgmma.wait_group.sync.aligned 0;"
    yield from _store("c", accumulators)


def copied_image(threads: int) -> Iterator[str]:
    """Yield code that copies the operands of a CTA into shared memory, and makes them visible to the async proxy."""
    yield ".reg .b32 %word, %shared;"
    yield "mov.u32 %first, image;"
    yield "ld.param.u32 %bytes, [image_bytes];"
    yield "ld.param.u64 %global_image, [b];"
    yield "mul.wide.u32 %wide, %cta, %bytes;"
    yield "add.u64 %global_image, %global_image, %wide;"
    yield "shl.b32 %offset, %local, 2;"
    yield "copy:"
    yield "setp.lt.u32 %more, %offset, %bytes;"
    yield "@!%more bra copied;"
    yield "cvt.u64.u32 %wide, %offset;"
    yield "add.u64 %place, %global_image, %wide;"
    yield "ld.global.b32 %word, [%place];"
    yield "add.u32 %shared, %first, %offset;"
    yield "st.shared.b32 [%shared], %word;"
    yield f"add.u32 %offset, %offset, {_WORD_BYTES * threads};"
    yield "bra copy;"
    yield "copied:"
    yield "fence.proxy.async;"
    yield "bar.sync 0;"


def moved_descriptors(names: tuple[str, ...]) -> Iterator[str]:
    """Yield code that adds the address of the operands in shared memory, in 16-byte units, to the given descriptors."""
    yield "shr.u32 %first, %first, 4;"
    yield "cvt.u64.u32 %start, %first;"
    for name in names:
        yield f".reg .b64 %descriptor_{name};"
        yield f"ld.param.u64 %descriptor_{name}, [descriptor_{name}];"
        yield f"add.u64 %descriptor_{name}, %descriptor_{name}, %start;"
