"""Claims, to be proved, that a fault does not change an output bit; each has only the logic that determines the bit.

A slice has two copies of the logic that the fault can affect, once without and once with the fault, and one copy of the
logic in front::

    logic in front --+--> nodes behind the fault, without it --> output bit --+
                     |                                                       = ?
                     +--> nodes behind the fault, with it -----> output bit --+

The bits of a word usually have slices of equal structure. Of all claims whose slices are equal except for the data that
they read, only one must be proved. For this, some nodes are *shared*: those that feed many nodes, such as the enable
input of a word, those that assumptions depend on, and all nodes in front of either. Two slices are equal if they read
the same shared nodes in the same way, and if all their other nodes can be numbered so that the two have the same gates
and registers. The numbers follow a traversal from the output, so that equal slices get equal numbers.

Some registers may be compared as well: then the copies end at the inputs of these registers, about which there are
claims of their own, and the registers belong to the logic in front. The fewer registers the copies have, the easier is
the proof, but a fault may change the state of a register without any effect on the outputs.

A *short* slice has only the registers in front that an output bit depends on within a few cycles. Registers further in
front are inputs of any value, which makes the slice small. A claim that holds in a short slice also holds in the
design. With short slices, all claims about a fault are proved, not one of each structure: a register may be an input
for one claim and state for another.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from .graph import INPUT, Graph, packed

__all__ = ["Claim", "Slices"]

#: A node is shared if it feeds at least this many registers and AND gates. The logic of two claims has equal
#: structure only if it reads the same shared nodes.
_MANY_READERS = 100
#: Maximum number of nodes that an assumption in a proof depends on. Larger assumptions, which compare whole words, are
#: left out of most proofs.
_LARGEST_ASSUMPTION = 5000


class Claim(NamedTuple):
    """Claim that a fault never changes a bit: the bit's literals without and with the fault are always equal."""

    right: int
    faulty: int


class Slices:
    """Slices of a design with faults. A slice is the logic that decides whether a fault changes one bit.

    Parameters
    ----------
    graph : Graph
        The design. Each fault is activated by an input of one bit.
    faults : mapping of int to str
        Number of each fault, and name of the input that activates the fault.
    """

    def __init__(self, graph: Graph, faults: Mapping[int, str]) -> None:
        self._graph = graph
        self._activates = {number: graph.inputs[name, 0] for number, name in faults.items()}
        self._constants = {*self._activates.values(), 0}
        self._active = 0
        #: Nodes that the fault can affect, and for each of these nodes its copy with the fault.
        self._originals: list[int] = []
        self._copies: dict[int, int] = {}
        #: All assumptions of the design; and those assumptions that depend on few nodes, which every proof uses.
        self._all_assumptions = [one for literal in graph.assumptions for one in graph.conjuncts(literal)]
        self._assumptions = [one for one in self._all_assumptions if len(self._cone([one])) <= _LARGEST_ASSUMPTION]
        nodes = range(graph.registers, len(graph))
        read_by_many = [2 * node for node in nodes if len(graph.readers[node]) >= _MANY_READERS]
        self._shared = self._cone(read_by_many + self._assumptions)

    def claims_about(self, number: int, cycles: int | None) -> list[Claim]:
        """Select a fault, and return claims that together state that the fault has no effect.

        The claims are about outputs, and about the next state of all registers that the fault does not affect within
        `cycles` cycles. If `cycles` is 0, no register may differ; if `cycles` is None, every register may differ.
        """
        graph = self._graph
        self._active = self._activates[number]
        self._originals = graph.behind(self._active, cycles)
        self._copies = {node: place for place, node in enumerate(self._originals, len(graph))}
        kept = (node for node in range(graph.registers, graph.gates) if node not in self._copies)
        compared = [*graph.outputs, *(graph.first[node] for node in kept)]
        claims = (Claim(literal, self._faulty(literal)) for literal in dict.fromkeys(compared))
        return [claim for claim in claims if claim.right != claim.faulty]

    def representatives(self, claims: Iterable[Claim]) -> list[Claim]:
        """Group claims whose logic has equal structure; return one claim of each group, smallest group first."""
        groups: dict[bytes, list[Claim]] = {}
        for claim in claims:
            groups.setdefault(self._structure(claim), []).append(claim)
        return [group[0] for group in sorted(groups.values(), key=len)]

    def write(
        self,
        path: Path,
        claims: Sequence[Claim],
        fixed: Mapping[int, int],
        *,
        all_assumed: bool = False,
        depth: int | None = None,
    ) -> None:
        """Write an AIGER file whose only output is 1 in every cycle in which some claim is false.

        `fixed` has the values of input nodes that are constants. If `all_assumed` is false, only assumptions about a
        few nodes are written, and if `depth` is not None, the slice is short: then a difference may not occur in the
        design.
        """
        assumptions = self._all_assumptions if all_assumed else self._assumptions
        literals = [literal for claim in claims for literal in claim] + assumptions
        ends = self._ends(literals, depth)
        nodes = self._cone(literals, ends) - fixed.keys()
        registers = sorted(node for node in nodes - ends if self._is_register(node))
        inputs = sorted(node for node in nodes if node in ends or not self._literals(node))
        # Copies with the fault have larger numbers than all original nodes, so that the number of every gate is larger
        # than the numbers of its fanins.
        gates = sorted(nodes - {*registers, *inputs})
        numbers = {node: number for number, node in enumerate([*inputs, *registers, *gates], 1)}

        def renamed(literal: int) -> int:
            node = literal >> 1
            if node in fixed:
                return fixed[node] ^ literal & 1
            return literal & 1 if node in self._constants else 2 * numbers[node] | literal & 1

        body = bytearray()
        last = len(inputs) + len(registers)

        def conjunction(first: int, second: int) -> int:
            nonlocal last
            last += 1
            body.extend(packed(2 * last, first, second))
            return 2 * last

        for node in gates:
            conjunction(*map(renamed, self._literals(node)))
        same = 1
        for right, faulty in claims:
            one, other = renamed(right), renamed(faulty)
            equal = conjunction(conjunction(one, other ^ 1) ^ 1, conjunction(one ^ 1, other) ^ 1)
            same = conjunction(same, equal)
        sizes = f"{last} {len(inputs)} {len(registers)} 0 {last - len(inputs) - len(registers)} 1 {len(assumptions)}"
        following = [renamed(*self._literals(node)) for node in registers]
        lines = [f"aig {sizes}", *following, same ^ 1, *map(renamed, assumptions)]
        path.write_bytes("".join(f"{line}\n" for line in lines).encode() + body)

    def _faulty(self, literal: int) -> int:
        node = literal >> 1
        if node == self._active:
            return 1 ^ literal & 1
        return 2 * self._copies.get(node, node) | literal & 1

    def _literals(self, node: int) -> tuple[int, ...]:
        """Return the literals at the inputs of a gate or register, which is a node of the design or a faulty copy."""
        graph, original = self._graph, self._original(node)
        fanins = tuple(one for one in (graph.first[original], graph.second[original]) if one != INPUT)
        return fanins if original == node else tuple(self._faulty(one) for one in fanins)

    def _fanins(self, node: int) -> tuple[int, ...]:
        """Return the nodes at the inputs of a gate or register, without constants."""
        return tuple(one >> 1 for one in self._literals(node) if one >> 1 not in self._constants)

    def _ends(self, literals: Iterable[int], depth: int | None) -> frozenset[int]:
        """Return the registers whose values reach `literals` after more than `depth` cycles, and bound their logic.

        Registers that the selected fault can affect are not included.
        """
        if depth is None:
            return frozenset()
        reached, ends, current = set[int](), set[int](), [literal >> 1 for literal in literals]
        cycle = 0
        while current:
            registers = list[int]()
            while current:
                node = current.pop()
                if node in reached or node in self._constants:
                    continue
                reached.add(node)
                if self._is_register(node):
                    registers.append(node)
                else:
                    current += self._fanins(node)
            for node in registers:
                if cycle < depth or self._original(node) in self._copies:
                    current += self._fanins(node)
                else:
                    ends.add(node)
            cycle += 1
        return frozenset(ends)

    def _cone(self, literals: Iterable[int], ends: frozenset[int] = frozenset()) -> set[int]:
        """Return all nodes but constants on which `literals` depend. Do not follow inputs of the registers `ends`."""
        reached, pending = set[int](), [literal >> 1 for literal in literals]
        while pending:
            node = pending.pop()
            if node not in reached and node not in self._constants:
                reached.add(node)
                pending += () if node in ends else self._fanins(node)
        return reached

    def _original(self, node: int) -> int:
        """Return the original node of the design if `node` is a faulty copy, otherwise `node` itself."""
        return node if node < len(self._graph) else self._originals[node - len(self._graph)]

    def _structure(self, claim: Claim) -> bytes:
        """Return a hash of the structure of a claim's logic. Claims of equal structure are all true or all false."""
        numbers: dict[int, object] = {}
        own: list[int] = []
        pending = [literal >> 1 for literal in reversed(claim)]
        while pending:
            node = pending.pop()
            if node in numbers or node in self._constants:
                continue
            if self._original(node) in self._shared:
                numbers[node] = f"shared {node}"
            else:
                numbers[node] = len(own)
                own.append(node)
                pending += reversed(self._fanins(node))

        def renamed(literal: int) -> object:
            node = literal >> 1
            return literal & 1 if node in self._constants else (numbers[node], literal & 1)

        digest = sha256()
        for literals in (claim, *map(self._literals, own)):
            digest.update(repr([*map(renamed, literals)]).encode())
        return digest.digest()

    def _is_register(self, node: int) -> bool:
        return self._graph.registers <= self._original(node) < self._graph.gates
