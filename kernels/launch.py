"""Function ``sptc.run_kernel``: launch a compiled kernel on arrays."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..api.backends import backend as backend_named
from ..errors import KernelError
from ..isa.architectures import target_named
from .arguments import global_memory
from .checker import Checker
from .cycles import LoopCycles, Work, launch_cycles, loops
from .geometry import Clusters, cta_numbers
from .machine import Finding, Launch, Machine
from .memory import GlobalMemory
from .program import Kernel, Special
from .ptx import parse_ptx
from .schedule import Program

__all__ = ["KernelRun", "execute", "run_kernel"]

#: Number of threads that are executed together. A larger number takes more memory, and a smaller number takes more
#: time.
_BATCH_THREADS = 1 << 15
#: Maximum total bytes of shared and local memory of the CTAs that are executed together.
_BATCH_BYTES = 256 << 20
_MOST_THREADS, _MOST_SHARED = 1024, 227 << 10
#: Maximum number of characters of the text printed by a kernel that the message of an error contains.
_MOST_TEXT = 1000
#: Maximum number of CTAs in a cluster.
_MOST_CLUSTER = 16
#: Maximum number of CTAs in a grid along each axis (PTX ISA, ``%nctaid``).
_MOST_CTAS = ((1 << 31) - 1, (1 << 16) - 1, (1 << 16) - 1)


@dataclass(frozen=True, eq=False)
class KernelRun:
    """Result of a launch: counts, cycles, undefined operations and the contents of the arrays."""

    kernel: str
    ctas: int
    threads: int  #: number of threads per CTA
    #: Number of executed thread instructions. An instruction counts once for each thread that executes it.
    instructions: int
    #: Number of executed instructions by the first part of their opcode. An instruction that the simulation executes
    #: for many threads at once counts once, so the numbers depend on which CTAs it simulates together.
    opcodes: dict[str, int]
    #: Tensor-core cycles of the launch for a single SM that executes all CTAs (:mod:`sptc.isa.timing`). None if the
    #: cycles of an instruction are unknown.
    cycles: float | None
    #: Cycles for which tensor cores, shared memory and register file are occupied: by the whole kernel, and by each
    #: loop with tensor-core instructions.
    loops: list[LoopCycles]
    #: Operations of the kernel that PTX leaves undefined, sorted by their line in the PTX text.
    findings: list[Finding]
    #: Whether results are bit-exact, which holds if no approximate function was executed.
    exact: bool
    #: Text that the kernel printed.
    printed: str
    #: Each array among the arguments, with the contents of its buffer after the launch.
    buffers: list[tuple[NDArray, NDArray]] = field(repr=False)

    def after(self, array: NDArray) -> NDArray:
        """Return the contents of an array's buffer after the launch, in the array's shape and type.

        Raises
        ------
        KernelError
            The array was not an argument of the launch.
        """
        for argument, content in self.buffers:
            if argument is array:
                return content
        raise KernelError("the array passed to KernelRun.after was not an argument of the launch")


def run_kernel(
    ptx: str | bytes,
    grid: int | Sequence[int],
    block: int | Sequence[int],
    args: Sequence[Any],
    *,
    entry: str | None = None,
    arch: str = "sm_90",
    backend: Any = "native",
    shared: int = 0,
    cluster: int | Sequence[int] | None = None,
    check: bool = True,
    approximate: bool = False,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> KernelRun:
    """Run all threads of a compiled kernel. The arrays that the caller passes remain unchanged.

    Parameters
    ----------
    ptx : str
        PTX module.
    grid, block : int or sequence of int
        CTAs of the grid and threads of a CTA along x, y and z.
    args : sequence
        Arguments of the kernel, in order. For a pointer: an int, or an array, which is copied to global memory (once,
        even if it is passed several times); for a number: an int or a float; for a tensor map: a
        :class:`~sptc.TensorMap`; for a structure: a :class:`~sptc.StructParameter`; for any parameter: bytes.
    entry : str, optional
        Name of the entry; needed if the module has several.
    arch : str
        Architecture of the tensor cores.
    backend : str or Backend
        Back end that executes tensor-core instructions, by name or as an object.
    shared : int
        Bytes of dynamic shared memory.
    cluster : int or sequence of int, optional
        CTAs of a cluster; by default the number that the kernel requires, or one.
    check : bool
        Check the order of accesses to shared memory (:mod:`sptc.kernels.checker`), which takes more time.
    approximate : bool
        Allow approximate functions such as ``ex2.approx``. Their results, and all results computed from them, are close
        to those of a GPU but not bit-exact; :attr:`KernelRun.exact` is then False.
    limit : int, optional
        Maximum number of executed thread instructions. A launch that exceeds this number stops with an error.
    progress : callable, optional
        Called with the number of finished CTAs and the number of all CTAs.

    Returns
    -------
    KernelRun

    Raises
    ------
    KernelError
        The module does not parse or has instructions that are not modelled; arguments do not fit; the kernel
        performs an operation that PTX forbids: an access to a misaligned address or outside of the allocations, a
        deadlock, too many arrivals at a barrier.
    """
    target_named(arch)
    backend_named(backend)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise KernelError(f"'limit' must be an integer above 0, not {limit!r}")
    chosen = _entry(parse_ptx(_text(ptx)), entry)
    ctas_of_cluster = _three("cluster", cluster if cluster is not None else chosen.cluster or 1)
    sides = _three("grid", grid), _three("block", block), ctas_of_cluster
    launch = Launch(*sides, shared, arch, backend, approximate)
    _check_launch(chosen, launch)
    return execute(chosen, launch, *global_memory(chosen, args), check=check, limit=limit, progress=progress)


def execute(
    kernel: Kernel,
    launch: Launch,
    memory: GlobalMemory,
    parameters: bytes,
    arrays: Sequence[tuple[int, NDArray]],
    *,
    check: bool = True,
    limit: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> KernelRun:
    """Execute all CTAs of a launch whose geometry is valid. The options are those of :func:`run_kernel`.

    `memory` and `parameters` are the contents of global memory and of parameter space. `arrays` are the arrays whose
    contents after the launch are in the result, each with its address.
    """
    work, findings = Work(limit), dict[tuple[int, str], Finding]()
    ctas, exact, printed = prod(launch.grid), True, list[str]()
    clusters = Clusters(ctas // launch.cluster_size)
    batch = _batch(kernel, launch, clusters.count)
    while started := clusters.take(batch):
        machine = Machine(kernel, launch, cta_numbers(launch, started), parameters, memory, clusters)
        machine.work = work
        if check and machine.shared_bytes:
            machine.checker = Checker(machine)
        try:
            machine.printed = printed
            Program(machine).run()
        except KernelError as error:
            earlier = "".join(f"; before that, {finding}" for finding in list(machine.findings.values())[:1])
            text = "".join(printed)[-_MOST_TEXT:].rstrip()
            raise KernelError(f"{error}{earlier}{f'; the kernel printed: {text}' if text else ''}") from None
        findings, exact = machine.findings | findings, exact and machine.exact
        if progress:
            progress(clusters.taken * launch.cluster_size, ctas)
    return KernelRun(
        kernel.name,
        ctas,
        launch.threads,
        work.thread_instructions,
        dict(work.opcodes.most_common()),
        launch_cycles(work, launch.arch),
        loops(kernel, work, launch.arch),
        [findings[key] for key in sorted(findings)],
        exact,
        "".join(printed),
        [(array, memory.read(address, array)) for address, array in arrays],
    )


def _text(ptx: str | bytes) -> str:
    if not isinstance(ptx, str | bytes):
        raise KernelError(f"'ptx' must be the text of a module, not {type(ptx).__name__}")
    try:
        return ptx.decode() if isinstance(ptx, bytes) else ptx
    except UnicodeDecodeError as error:
        line = ptx.count(b"\n", 0, error.start) + 1 if isinstance(ptx, bytes) else 0
        raise KernelError(f"line {line}: the text is not UTF-8") from None


def _entry(kernels: Mapping[str, Kernel], name: str | None) -> Kernel:
    names = ", ".join(kernels)
    if name is None:
        if len(kernels) > 1:
            raise KernelError(f"the module has several kernels ({names}); choose one with the argument 'entry'")
        return next(iter(kernels.values()))
    if not isinstance(name, str) or name not in kernels:
        raise KernelError(f"the module has no kernel {name!r}; its kernels are {names}")
    return kernels[name]


def _three(name: str, value: Any) -> tuple[int, int, int]:
    values = tuple(value) if isinstance(value, Sequence) else (value,)
    if not 1 <= len(values) <= 3 or any(not isinstance(v, int | np.integer) or v < 1 for v in values):
        raise KernelError(f"{name} must be one to three integers above 0, not {value!r}")
    x, y, z = (*map(int, values), 1, 1)[:3]
    return x, y, z


def _check_launch(kernel: Kernel, launch: Launch) -> None:
    demanded = (*kernel.block, 1, 1)[:3] if kernel.block else None
    if demanded and launch.block != demanded:
        raise KernelError(f"{kernel.name} requires CTAs of {demanded} threads (.reqntid), not {launch.block}")
    if any(side > most for side, most in zip(launch.grid, _MOST_CTAS, strict=True)):
        raise KernelError(f"a grid has at most {' x '.join(map(str, _MOST_CTAS))} CTAs, not {launch.grid}")
    if launch.threads > _MOST_THREADS:
        raise KernelError(f"a CTA has at most {_MOST_THREADS} threads, not {launch.threads}")
    if launch.cluster_size > _MOST_CLUSTER:
        raise KernelError(f"a cluster has at most {_MOST_CLUSTER} CTAs, not {launch.cluster}")
    if any(side % part for side, part in zip(launch.grid, launch.cluster, strict=True)):
        raise KernelError(f"the grid {launch.grid} is not a multiple of the cluster {launch.cluster} along each axis")
    if not isinstance(launch.shared, int | np.integer) or not 0 <= launch.shared <= _MOST_SHARED:
        raise KernelError(f"'shared' must be 0 to {_MOST_SHARED} bytes, not {launch.shared}")
    if kernel.static_shared + launch.shared > _MOST_SHARED:
        raise KernelError(f"{kernel.name} needs {kernel.static_shared + launch.shared} bytes of shared memory; "
                          f"a CTA has at most {_MOST_SHARED}")  # fmt: skip


def _batch(kernel: Kernel, launch: Launch, clusters: int) -> int:
    """Return the number of clusters that are executed together (a batch).

    If the kernel cancels clusters that have not started, a batch has at most half of the clusters of the grid. With a
    barrier of the whole grid, the batch has all clusters.
    """
    octets = launch.shared + kernel.static_shared + launch.lanes * kernel.local_bytes
    ctas = min(_BATCH_THREADS // launch.lanes, _BATCH_BYTES // max(octets, 1))
    if any(operand == Special("%envreg1") for ins in kernel.instructions for operand in ins.operands):
        return clusters  # a barrier of the grid needs all CTAs in one batch
    if any(ins.words[0] == "clusterlaunchcontrol" for ins in kernel.instructions):
        clusters = -(-clusters // 2)
    return max(1, min(ctas // launch.cluster_size, clusters))
