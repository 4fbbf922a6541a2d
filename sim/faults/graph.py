"""And-inverter graphs of designs with registers, read from the binary AIGER files that Yosys writes.

A *node* is the constant zero (node 0), an input, a register or an AND gate. A *literal* is twice the number of a node,
plus one if its value is inverted.
"""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

__all__ = ["INPUT", "Graph", "packed"]

#: Value of :attr:`Graph.first` for nodes without fanin, and of :attr:`Graph.second` for all nodes but AND gates.
INPUT = -1


class Graph:
    """And-inverter graph of a design. The lists `first` and `second` have the fanins of each node.

    Parameters
    ----------
    path : Path
        Binary AIGER file (version 1.9) whose registers start at zero. Its invariant constraints are the assumptions.
    names : Path
        The file that Yosys' ``write_aiger -map`` wrote.

    Source: Biere, Heljanko and Wieringa, "AIGER 1.9 and beyond", 2011.
    """

    def __init__(self, path: Path, names: Path) -> None:
        data = path.read_bytes()
        place = data.index(b"\n") + 1
        _, inputs, latches, outputs, gates, *more = map(int, data[:place].split()[1:])
        bad, constraints = (*more, 0, 0)[:2]
        assert not bad, "the design has no claims of its own"

        def lines(count: int) -> Iterator[list[int]]:
            nonlocal place
            for _ in range(count):
                end = data.index(b"\n", place)
                yield [int(word) for word in data[place:end].split()]
                place = end + 1

        #: Node numbers of the first register and of the first AND gate.
        self.registers, self.gates = inputs + 1, inputs + latches + 1
        #: For each node, the literal at the first input of an AND gate or at the data input of a register.
        self.first = [INPUT] * self.registers
        #: For each node, the literal at the second input of an AND gate.
        self.second = [INPUT] * self.gates
        for following, *initial in lines(latches):
            assert initial in ([], [0]), "registers start at zero"
            self.first.append(following)
        #: Literals of the outputs, and literals of the assumptions; assumptions are 1 in every cycle.
        self.outputs = [literal for (literal,) in lines(outputs)]
        self.assumptions = [literal for (literal,) in lines(constraints)]
        place = self._read_gates(data, place, gates)
        #: Input nodes. Keys: name and bit number of the input.
        self.inputs = {}
        for line in names.read_text(encoding="utf-8").splitlines():
            kind, number, bit, name = line.split(maxsplit=3)
            if kind == "input":
                self.inputs[name, int(bit)] = int(number) + 1

    def _read_gates(self, data: bytes, place: int, count: int) -> int:
        """Read the AND gates, which AIGER stores as differences of literals, with seven bits in each byte."""
        first, second = self.first, self.second
        for literal in range(2 * self.gates, 2 * (self.gates + count), 2):
            for fanin in (first, second):
                difference = shift = 0
                while (byte := data[place]) & 0x80:
                    difference |= (byte & 0x7F) << shift
                    shift, place = shift + 7, place + 1
                literal -= difference | byte << shift
                place += 1
                fanin.append(literal)
        return place

    def __len__(self) -> int:
        """Return the number of nodes of the graph."""
        return len(self.first)

    @cached_property
    def readers(self) -> list[list[int]]:
        """For each node, the registers and AND gates that the node feeds."""
        result: list[list[int]] = [[] for _ in self.first]
        for fanin in (self.first, self.second):
            for node, literal in enumerate(fanin):
                if literal >= 0:
                    result[literal >> 1].append(node)
        return result

    def behind(self, node: int, cycles: int | None) -> list[int]:
        """Return, in ascending order, all nodes that a node can affect within `cycles` cycles; None means no limit.

        The cycle of the change itself is cycle 0, so that registers are affected in cycle 1 at the earliest.
        """
        reached, current, cycle = set[int](), [node], 0
        while current:
            registers = list[int]()
            while current:
                for reader in self.readers[current.pop()]:
                    if reader not in reached and (reader >= self.gates or cycle != cycles):
                        reached.add(reader)
                        (current if reader >= self.gates else registers).append(reader)
            current, cycle = registers, cycle + 1
        return sorted(reached)

    def conjuncts(self, literal: int) -> list[int]:
        """Return literals whose conjunction is the given literal: the leaves of the literal's tree of AND gates."""
        result, pending = dict[int, None](), [literal]
        while pending:
            if (one := pending.pop()) & 1 or one >> 1 < self.gates:
                result[one] = None
            else:
                pending += [self.second[one >> 1], self.first[one >> 1]]
        return [one for one in result if one != 1]


def packed(literal: int, first: int, second: int) -> bytes:
    """Return the AIGER encoding of the AND gate with literal `literal` and the input literals `first` and `second`."""
    large, small = max(first, second), min(first, second)
    result = bytearray()
    for difference in (literal - large, large - small):
        while difference >= 0x80:
            result.append(difference & 0x7F | 0x80)
            difference >>= 7
        result.append(difference)
    return bytes(result)
