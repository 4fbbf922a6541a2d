"""PTX text of a kernel that executes one ``tcgen05.mma`` on images of tensor memory and shared memory.

One CTA, or a pair of CTAs, computes a case: it copies the image of shared memory, writes the columns of tensor memory
that hold operands, multiplies, and stores the columns of D.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from ..isa.tcgen05 import Opcode
from .ptx import ENTRY, PARAMETERS, copied_image, group, indented, moved_descriptors, version_and_target

__all__ = ["RANGE", "ranges_of", "tensor_kernel"]

#: Number of tensor-memory columns that one load or store instruction accesses.
RANGE = 8
#: Number of columns of tensor memory. The kernel allocates all of them.
_COLUMNS = 512
_RANGE_BYTES, _LANES, _WARP_LANES = 4 * RANGE, 128, 32
#: Maximum number of tests whether the barrier is complete; a test takes some microseconds. If all tests fail, the
#: kernel stores an unfinished D.
_TRIES = 1 << 20


def ranges_of(addresses: Mapping[str, int], n: int) -> tuple[list[int], list[int]]:
    """Return the first columns of 8-column ranges of tensor memory: those of D, then those of metadata and scales."""
    d = [addresses["d"] + column for column in range(0, n, RANGE)]
    return d, [addresses[name] for name in ("e", "scale_a", "scale_b") if name in addresses]


def tensor_kernel(opcode: Opcode, target: str, idesc: int, addresses: Mapping[str, int], n: int) -> str:
    """Return the PTX text of a kernel for one ``tcgen05.mma`` with A and B in shared memory.

    `target` is the target of the assembler, for example ``sm_100a``; `idesc` the instruction descriptor; `n` the number
    of columns of D. `addresses` holds addresses in tensor memory: ``d``, and if the instruction has them ``e``,
    ``scale_a`` and ``scale_b``.

    The module has the entry and the parameters of :func:`sptc.gpu.ptx.kernel`. Parameter `a` holds the ranges of tensor
    memory, uint32 of shape (CTA, range, 128, 8), those of D first; `b` the images of shared memory; `d` gets the ranges
    of D. Each CTA has 128 threads.

    Source: PTX ISA 9.7.16 (tcgen05): allocation, ``st`` and ``ld`` of shape ``.32x32b``, commit, and fences around
    barriers.
    """
    pair = opcode.cta_group == 2
    # Write the scale size as .scale_vec, which sparse opcodes need; older PTX versions lack .block16 and .block32.
    if opcode.scale_size:
        opcode = replace(opcode, scale_word=f"scale_vec::{opcode.scale_size}X")
    return f"""\
{version_and_target(target)}
.address_size 64
.extern .shared .align 1024 .b8 image[];
.visible .entry {ENTRY}(
{PARAMETERS})
.reqntid {_LANES}{" .reqnctapercluster 2" if pair else ""}
{{
  .reg .pred %more, %adds, %issues, %done, %first_warp;
  .reg .b16 %both;
  .reg .b32 %cta, %local, %size, %offset, %first, %bytes, %at, %tensor, %lanes, %barrier, %slot, %idesc, %tries, %rank;
  .reg .b32 %place_e, %place_scale_a, %place_scale_b, %place_d, %word<{RANGE}>;
  .reg .b64 %address, %wide, %global_image, %place, %start;
  .shared .align 8 .b64 barrier;
  .shared .align 4 .b32 allocated;
{indented(_body(opcode, idesc, addresses, n))}
  ret;
}}
"""


def _body(opcode: Opcode, idesc: int, addresses: Mapping[str, int], n: int) -> Iterator[str]:
    of_group, (d_ranges, other_ranges) = f"cta_group::{opcode.cta_group}", ranges_of(addresses, n)
    yield from ("mov.u32 %cta, %ctaid.x;", "mov.u32 %local, %tid.x;", "mov.u32 %rank, 0;")
    if opcode.cta_group == 2:
        yield "and.b32 %rank, %cta, 1;"
    yield from ("mov.u32 %barrier, barrier;", "mov.u32 %slot, allocated;", "setp.lt.u32 %first_warp, %local, 32;")
    yield from ("setp.eq.u32 %issues, %local, 0;", "@!%issues bra initialised;")
    yield from ("mbarrier.init.shared.b64 [%barrier], 1;", "fence.mbarrier_init.release.cluster;", "initialised:")
    yield "@!%first_warp bra got;"
    yield f"tcgen05.alloc.{of_group}.sync.aligned.shared::cta.b32 [%slot], {_COLUMNS};"
    yield f"tcgen05.relinquish_alloc_permit.{of_group}.sync.aligned;"
    yield "got:"
    yield from copied_image(_LANES)
    yield from _meet(opcode)
    yield from ("ld.shared.b32 %tensor, [%slot];", "and.b32 %lanes, %local, 96;", "shl.b32 %lanes, %lanes, 16;")
    yield "add.u32 %lanes, %lanes, %tensor;"
    for number, column in enumerate([*d_ranges, *other_ranges]):
        yield from _range_place("a", number, len(d_ranges) + len(other_ranges))
        yield from (f"ld.global.b32 %word{index}, [%address+{4 * index}];" for index in range(RANGE))
        yield f"add.u32 %at, %lanes, {column};"
        yield f"tcgen05.st.sync.aligned.32x32b.x{RANGE}.b32 [%at], {group('word', RANGE)};"
    yield "tcgen05.wait::st.sync.aligned;"
    yield from _meet(opcode)
    yield from moved_descriptors(("a", "b"))
    yield from ("setp.eq.u32 %adds, 0, 0;", f"mov.u32 %idesc, {idesc};")
    for name in ("d", "e", "scale_a", "scale_b"):
        if name in addresses:
            yield f"add.u32 %place_{name}, %tensor, {addresses[name]};"
    operands = ["[%place_d]", "%descriptor_a", "%descriptor_b", *(["[%place_e]"] if "e" in addresses else []), "%idesc"]
    operands += [f"[%place_{name}]" for name in ("scale_a", "scale_b") if name in addresses]
    yield from ("or.b32 %at, %local, %rank;", "setp.eq.u32 %issues, %at, 0;", "@!%issues bra issued;")
    yield f"{opcode} {', '.join([*operands, '%adds'])};"
    commit = f"tcgen05.commit.{of_group}.mbarrier::arrive::one.shared::cluster"
    if opcode.cta_group == 2:
        yield from ("mov.u16 %both, 3;", f"{commit}.multicast::cluster.b64 [%barrier], %both;")
    else:
        yield f"{commit}.b64 [%barrier];"
    yield from ("issued:", "mov.u32 %tries, 0;", "waiting:")
    yield from ("mbarrier.try_wait.parity.shared.b64 %done, [%barrier], 0;", "@%done bra computed;")
    yield from ("add.u32 %tries, %tries, 1;", f"setp.lt.u32 %more, %tries, {_TRIES};", "@%more bra waiting;")
    yield from ("computed:", "tcgen05.fence::after_thread_sync;")
    for number, column in enumerate(d_ranges):
        yield f"add.u32 %at, %lanes, {column};"
        yield f"tcgen05.ld.sync.aligned.32x32b.x{RANGE}.b32 {group('word', RANGE)}, [%at];"
        yield "tcgen05.wait::ld.sync.aligned;"
        yield from _range_place("d", number, len(d_ranges))
        yield from (f"st.global.b32 [%address+{4 * index}], %word{index};" for index in range(RANGE))
    yield from _meet(opcode)
    yield "@!%first_warp bra released;"
    yield f"tcgen05.dealloc.{of_group}.sync.aligned.b32 %tensor, {_COLUMNS};"
    yield "released:"


def _meet(opcode: Opcode) -> Iterator[str]:
    """Yield code that waits for all threads of the CTA or CTA pair, and orders their accesses to tensor memory."""
    yield "tcgen05.fence::before_thread_sync;"
    if opcode.cta_group == 2:
        yield from ("barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;")
    else:
        yield "bar.sync 0;"
    yield "tcgen05.fence::after_thread_sync;"


def _range_place(name: str, number: int, count: int) -> Iterator[str]:
    """Yield code that computes the global-memory address of a thread's words of one 8-column tensor-memory range."""
    yield f"mad.lo.u32 %offset, %cta, {count}, {number};"
    yield f"mad.lo.u32 %offset, %offset, {_LANES}, %local;"
    yield f"ld.param.u64 %address, [{name}];"
    yield f"mul.wide.u32 %wide, %offset, {_RANGE_BYTES};"
    yield "add.u64 %address, %address, %wide;"
