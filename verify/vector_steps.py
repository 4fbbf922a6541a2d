"""Test vectors for the ports of top modules `unit`, `row` and `warp`, with results of the golden model."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..errors import OperandError
from ..golden.matrix import multiply_by
from ..isa.fragments import accumulator_fragment
from ..isa.instructions import Instruction
from ..isa.metadata import MUX_OF_ARCHITECTURE, UNITS_PER_CHUNK, join_nibbles, split_nibbles
from ..isa.numerics import DATAPATHS, Method, Numerics, numerics
from ..isa.operands import MatrixOperands
from ..operands.registers import to_registers
from ..rtl.config import CoreConfig
from ..rtl.metadata import RuleCode
from ..rtl.order import DENSE_NIBBLE, nibble_order
from ..rtl.round import ResultCode
from ..rtl.scale import ScaleCode
from ..rtl.step import control_layout
from ..rtl.warp import LANES, REGISTERS, ROWS, warp_operands_layout, warp_result_layout
from ..sim.benches.blocks import integer_results, undefined_chunks
from ..sim.coverage.operands import Operation, operation_of, operations_of, routes
from ..sim.engine.steps import control_word, step_count, step_words, steps_of
from .register_file import RegisterFile

__all__ = ["datapath_numerics", "directed_steps", "numerics_text", "step_vectors", "warp_vectors"]

_BITS = 32
#: Bit mask of the field for the metadata rule in a control word, after the field has been shifted to bit 0.
_RULE = 7
#: Supported numbers of bytes of A that a unit reads per cycle. With them, metadata fills whole words of 32 bits, and
#: the sums of the golden model are exact.
_STEP_BYTES = (16, 32)
#: Number of alignment bits by which the F of a datapath may exceed the largest F of all architectures; up to this
#: number, the golden model is exact.
_MORE_ALIGNMENT = 1
_Vectors = tuple[NDArray[np.uint32], NDArray[np.uint32]]


def datapath_numerics(config: CoreConfig, instruction: Instruction, arch: str) -> Numerics:
    """Return the numerics of an instruction on a datapath; `arch` determines only the method, such as emulation.

    Raise an `OperandError` if the datapath does not execute the instruction directly, or the golden model does not
    support the datapath.
    """
    arch_numerics = numerics(instruction, arch)
    if not config.holds(instruction):
        raise OperandError(f"the datapath {config.name} does not support the formats of {instruction}")
    if arch_numerics.method is Method.EMULATED:
        raise OperandError(
            f"the datapath of {arch} emulates {instruction} with other instructions; "
            "make test vectors of these other instructions instead"
        )
    if config.step_bytes not in _STEP_BYTES:
        steps = " or ".join(map(str, _STEP_BYTES))
        raise OperandError(f"the datapath must read {steps} bytes of stored A per cycle, not {config.step_bytes}")
    own, grouped = operation_of(config, instruction).numerics, arch_numerics.method is Method.GROUPED
    if arch_numerics.method is Method.INTEGER:
        return replace(arch_numerics, step=own.step)
    largest_alignment = config.block_alignment_bits if grouped else config.alignment_bits
    known = (arch_numerics.alignment_bits, *(datapath.alignment_bits for datapath in DATAPATHS.values() if not grouped))
    if largest_alignment > max(known) + _MORE_ALIGNMENT:
        raise OperandError(
            f"the golden model supports at most {max(known) + _MORE_ALIGNMENT} alignment bits for {instruction}, not "
            f"{largest_alignment}"
        )
    return replace(
        arch_numerics,
        step=own.step,
        alignment_bits=own.alignment_bits,
        zero_exponent=own.zero_exponent,
        rounding=own.rounding,
        group=own.group,
    )


def numerics_text(config: CoreConfig | None, instruction: Instruction, arch: str) -> str:
    """Return, as text, the numerics of test vectors: the architecture's or, if different, also the datapath's numerics.

    `config` is the datapath of the vectors, or None at level ``registers``.
    """
    arch_numerics = replace(numerics(instruction, arch), source="")
    used = replace(datapath_numerics(config, instruction, arch), source="") if config else arch_numerics
    arch_mux = MUX_OF_ARCHITECTURE[arch]
    mux = config.mux if config and instruction.sparse else arch_mux
    if config is None or (used, mux) == (arch_numerics, arch_mux):
        return f"numerics of {arch} ({_step_parameters(arch_numerics)})"
    names = [_step_parameters(used), _step_parameters(arch_numerics)]
    if names[0] == names[1]:
        details = {
            "e_zero": (used.zero_exponent, arch_numerics.zero_exponent),
            "group": (used.group, arch_numerics.group),
            "multiplexers": (mux, arch_mux),
        }
        for name, values in details.items():
            if values[0] != values[1]:
                names = [f"{words}, {name} = {value}" for words, value in zip(names, values, strict=True)]
    return f"numerics of the datapath {config.name} ({names[0]}), not those of {arch} ({names[1]})"


def _step_parameters(parameters: Numerics) -> str:
    exact = parameters.method is Method.INTEGER
    return f"L = {parameters.step}, {'exact sums' if exact else f'F = {parameters.alignment_bits}'}"


def step_vectors(
    config: CoreConfig, instruction: Instruction, parameters: Numerics, matrices: MatrixOperands, top: str
) -> _Vectors:
    """Return inputs and results of the top module ``unit`` or ``row`` for a batch of tiles, shape (count, words).

    Vectors are ordered by tile, row, column and step. The result of a step is the accumulator of the next step of the
    same output. `parameters` is the result of :func:`datapath_numerics`.
    """
    words, rows = step_words(config), []
    results = _results(config, instruction, parameters, matrices)
    steps = steps_of(config, instruction, matrices)
    previous = matrices.c.astype(np.uint64)
    for step, result in zip(steps, results, strict=True):
        rows.append((step.whole(previous), result))
        previous = result
    inputs, d = (np.stack(arrays, axis=3) for arrays in zip(*rows, strict=True))
    inputs = inputs.reshape(-1, words.total)
    outputs = np.stack([d.ravel(), d.ravel() >> np.uint64(_BITS)], axis=1).astype(np.uint32)
    if top == "unit":
        return _decoded(config, instruction, inputs), outputs
    rule = control_word(config, instruction, True) >> control_layout()["rule"].offset & _RULE
    flags = undefined_chunks(config, instruction, inputs[:, words.metadata], rule, True)
    outputs[:, 1] |= (flags << np.uint64(1)).astype(np.uint32)  # the metadata flags follow the overflow bit
    return inputs, outputs


def _results(
    config: CoreConfig, instruction: Instruction, parameters: Numerics, matrices: MatrixOperands
) -> Iterator[NDArray[np.uint64]]:
    """Yield the results of each step (cycle) along K as words, without flags of undefined metadata."""
    count = step_count(config, instruction)
    scale_size = instruction.scale_size and max(1, instruction.scale_size // count)
    part = replace(instruction, k=instruction.k // count, scale_size=scale_size, satfinite=False)
    # A block scale may apply to several successive steps (cycles) along K: repeat the scale for each of them.
    repeats = (scale_size or 0) * count // (instruction.scale_size or 1)
    scale_a, scale_b = (
        None if scale is None else scale.repeat(repeats, axis=2) for scale in (matrices.scale_a, matrices.scale_b)
    )
    total = matrices.c.view(np.int32).astype(np.int64) if instruction.d.is_integer else None
    c = matrices.c
    steps = list(replace(matrices, scale_a=scale_a, scale_b=scale_b).steps(part))
    for number, step in enumerate(steps, 1):
        if total is None:
            c = multiply_by(part, parameters, config.mux, replace(step, c=c))
            yield c.astype(np.uint64)
            continue
        products = multiply_by(part, parameters, config.mux, replace(step, c=np.zeros_like(c)))
        total = total + products.view(np.int32)
        yield integer_results(total, instruction.satfinite and number == len(steps))


def _decoded(config: CoreConfig, instruction: Instruction, steps: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Convert inputs of module `row` to those of `unit`: decode metadata, swap elements of A for 3:1 multiplexers."""
    words = step_words(config)
    a, b, rest = steps[:, words.a], steps[:, words.b], steps[:, words.c.start :]
    if not config.sparse:
        return np.concatenate([a, b, rest], axis=1)
    lanes = config.chunks // 2 if config.always_wide else config.chunks
    nibbles = split_nibbles(np.ascontiguousarray(steps[:, words.metadata]).view(np.uint8))[:, :lanes]
    name = instruction.rule.name if instruction.rule else "plain"
    places, delivered, swapped = routes(name, config.mux)
    # One-hot selects of the two multiplexers of a chunk; 0 if a multiplexer cannot reach the selected element of B.
    selects = (delivered << places << [0, UNITS_PER_CHUNK]).sum(axis=1).astype(np.uint8)[nibbles]
    if swapped.any():
        swaps = swapped[nibbles]
        swaps = swaps[:, ::2] if config.interleaved and instruction.wide else swaps
        units = np.ascontiguousarray(a).view("<u2" if instruction.wide else "u1").reshape(len(a), -1, 2)
        a = np.where(swaps[:, : units.shape[1], None], units[..., ::-1], units).reshape(len(a), -1).view("<u4")
    return np.concatenate([a, b, np.ascontiguousarray(selects).view("<u4"), rest], axis=1)


def warp_vectors(
    config: CoreConfig, parameters: Numerics, file: RegisterFile, matrices: MatrixOperands, rng: np.random.Generator
) -> _Vectors:
    """Return the words of the operand stream and the result stream of module `warp`, each of shape (tiles, words).

    `parameters` is the result of :func:`datapath_numerics`; `matrices` are in the registers of `file`. `rng` draws
    registers and fields that the instruction does not read.
    """
    i, cases = file.instruction, file.cases
    assert file.a is not None
    layout, result_layout = warp_operands_layout(), warp_result_layout()
    inputs = rng.integers(0, 1 << _BITS, (cases, -(-layout.size // _BITS)), dtype=np.uint32)
    for name, operand in file.operands.items():
        words = slice(layout[name].offset // _BITS, (layout[name].offset + layout[name].width) // _BITS)
        lanes, registers = inputs[:, words].reshape(cases, LANES, -1), operand.reshape(cases, LANES, -1)
        lanes[..., : registers.shape[2]] = registers
        inputs[:, words] = lanes.reshape(cases, -1)
    ids = file.scale_ids if i.scale_size else tuple(int(rng.integers(most)) for most in (4, 2, 4, 4))
    fields = {
        "control": control_word(config, i, last=True) & (1 << control_layout().size) - 1,
        "long": int(file.a.shape[2] == REGISTERS),
        "sparsity_selector": file.sparsity_selector if i.sparse else int(rng.integers(4)),
        "scale_size": (i.scale_size or 1).bit_length() - 1,
        **dict(zip(("byte_a", "thread_a", "byte_b", "thread_b"), ids, strict=True)),
    }
    # The last word of the operand stream's payload contains all fields that are not registers, such as the selector.
    last = _BITS * (inputs.shape[1] - 1)
    inputs[:, -1] = sum(value << layout[name].offset - last for name, value in fields.items())
    outputs = np.zeros((cases, -(-result_layout.size // _BITS)), np.uint32)
    d = to_registers(multiply_by(i, parameters, config.mux, matrices), accumulator_fragment(i))
    outputs[:, : LANES * REGISTERS].reshape(cases, LANES, REGISTERS)[..., : d.shape[2]] = d
    outputs[:, result_layout["illegal"].offset // _BITS :] = _warp_flags(i, matrices)
    return inputs, outputs


def _warp_flags(instruction: Instruction, matrices: MatrixOperands) -> NDArray[np.uint32]:
    """Return the flags of undefined metadata nibbles as words, with 16 bits for each row."""
    flags = np.zeros((len(matrices.a), ROWS), np.uint16)
    if instruction.rule:
        assert matrices.nibbles is not None
        broken = ~np.isin(matrices.nibbles, list(instruction.rule.legal))
        flags[:] = (broken.astype(np.uint16) << np.arange(instruction.chunks, dtype=np.uint16)).sum(axis=2)
    return flags.view("<u4")


#: Number of successive random inputs of a unit that have the same control word (formats, rounding and rule).
_RUN = 16


def directed_steps(config: CoreConfig, rng: np.random.Generator, count: int) -> NDArray[np.uint32]:
    """Return random unit inputs for :meth:`sptc.sim.engine.engine.Engine.push` that use a datapath's formats in turn.

    Operands, nibbles, scales and accumulators are random bits; B and nibbles have the order of a unit's inputs. Every
    metadata rule occurs with all formats, even with formats for which no instruction has this rule. Steps are dense
    with probability 1/8. Half of the integer accumulators are just beyond 32 bits, with the overflow bit, like sums of
    an earlier step. A thousand steps for each operation reach every rule, nibble and chunk.
    """
    words = step_words(config)
    steps = rng.integers(0, 1 << 32, (count, words.total), dtype=np.uint32)
    operations = operations_of(config)
    order = rng.permutation(len(operations))
    for run, first in enumerate(range(0, count, _RUN)):
        operation = operations[order[run % len(order)]]
        part = slice(first, first + _RUN)
        steps[part, words.control] = 0
        steps[part, words.control.start] = control = _control(operation, rng)
        steps[part, words.metadata] = _nibbles(operation, control, rng, len(steps[part]))
        if operation.integer:
            _pass_on(steps[part], operation, rng)
    return steps


def _control(operation: Operation, rng: np.random.Generator) -> int:
    elements = operation.config.elements
    rules = list(RuleCode.__members__)
    fields = {
        "a": elements.index(operation.a),
        "b": elements.index(operation.b),
        "result": ResultCode.__members__[operation.result.upper()],
        "saturate": int(rng.integers(2)),
        "sparse": int(rng.random() < 0.875),
        "rule": RuleCode.__members__[rules[int(rng.integers(len(rules)))]],
        "scale": ScaleCode.__members__[operation.scale.upper()],
    }
    return int(control_layout().const(fields).as_value().value)


def _nibbles(operation: Operation, control: int, rng: np.random.Generator, count: int) -> NDArray[np.uint32]:
    """Return random metadata words in the order of a unit's inputs; for dense A, all nibbles are equal."""
    nibbles = rng.integers(0, 16, (count, operation.config.chunks), dtype=np.uint32)
    if control >> control_layout()["sparse"].offset & 1:
        nibbles = nibbles[:, nibble_order(operation.config, wide=operation.a.wide)]
    else:
        nibbles[:] = DENSE_NIBBLE
    return np.ascontiguousarray(join_nibbles(nibbles.astype(np.uint8))).view("<u4")


def _pass_on(steps: NDArray[np.uint32], operation: Operation, rng: np.random.Generator) -> None:
    """Set about half of the integer accumulators in `steps` (input words) to values slightly outside the s32 range."""
    words = step_words(operation.config)
    size = len(steps)
    beyond = rng.integers(0, 1 << int(rng.integers(1, 17)), size)
    signed = operation.a.format.signed or operation.b.format.signed
    high = (rng.random(size) < 0.5) | (not signed)  # sums of unsigned products cannot be negative
    accumulators = np.where(high, (1 << 31) + beyond, (1 << 31) - 1 - beyond).astype(np.uint32)
    passed = rng.random(size) < 0.5
    steps[:, words.c.start] = np.where(passed, accumulators, steps[:, words.c.start])
    steps[:, words.control.start] |= passed.astype(np.uint32) << np.uint32(words.overflow_bit)
