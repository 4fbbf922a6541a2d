"""Cells, functions and energy tables of Liberty files are read right, and invalid files are rejected."""

import gzip
import hashlib
import re
from itertools import product
from pathlib import Path

import pytest
from sptc.errors import Error, FileError
from sptc.synth.energy.electrical import CellLibrary, Table
from sptc.synth.functions import computing
from sptc.synth.liberty import Library
from sptc.synth.liberty_text import plain
from sptc.tests.synth.power_library import CAPACITANCE, FALL, LIBRARY, OF_CLOCK, RISE, TEXT, VOLTAGE


def test_functions() -> None:
    for function, same in (
        ("!(A B)", lambda a, b, c: not (a and b)), ("!A | !B", lambda a, b, c: not (a and b)),
        ("(A*B)'", lambda a, b, c: not (a and b)), ("A B+C", lambda a, b, c: (a and b) or c),
        ("A+B C", lambda a, b, c: a or (b and c)), ("A^B C", lambda a, b, c: (a != b) and c),
        ("A^B^C", lambda a, b, c: (a + b + c) % 2 == 1), ("!A'", lambda a, b, c: a), ("A''", lambda a, b, c: a),
        ("A'B", lambda a, b, c: not a and b), ("( A & ! ( B | C ) )", lambda a, b, c: a and not (b or c)),
        ("A & 1 | 0", lambda a, b, c: a),
    ):  # fmt: skip
        every = [*product((False, True), repeat=3)]
        values = [computing(function)(dict(zip("ABC", bits, strict=True)), True) for bits in every]
        assert values == [bool(same(*bits)) for bits in every], function
    for function in ("", "A +", "(A", "A)", "A # B", "A ! "):
        with pytest.raises(ValueError):  # noqa: PT011
            pytest.fail(f"{function!r} is {computing(function)({'A': True, 'B': True}, True)}")


def test_cells_and_their_use(library: Library) -> None:
    areas = {cell.name: cell.area for cell in library.cells}
    assert areas == {"INV": 2, "BUF": 3, "BIG_NAND2": 8, "NAND2": 4, "NOR2": 5, "ADD": 30, "FLOP": 16}
    flop = library.cells[-1]
    assert (flop.inputs, flop.outputs) == (("D", "K"), (("Q", "IQ"),))
    assert not flop.computes("Q", frozenset({0, 1}))
    assert library.nand2.name == "NAND2"
    adder = library.full_adder
    assert (adder.cell.name, adder.total, adder.carry, adder.inverted) == ("ADD", "S", "CO", (False, False))
    inverted = Library("inverted.lib", library.text.replace('"A^B^C"', '"!(A^B^C)"')).full_adder
    assert (inverted.total, inverted.carry, inverted.inverted) == ("S", "CO", (True, False))
    assert library.flip_flop.name == "FLOP"
    text = "\n".join(line for line in library.text.splitlines() if "NAND2" not in line and "(ADD)" not in line)
    assert Library("poor.lib", text).nand2 is None
    assert Library("free.lib", re.sub(r"area : \d+", "area : 0", library.text)).nand2 is None
    with pytest.raises(Error, match=r"^poor\.lib has no full adder \(a cell with the outputs A \^ B \^ C"):
        _ = Library("poor.lib", text).full_adder


def test_a_file_and_several_of_one_corner(library: Library, liberty: Path, tmp_path: Path) -> None:
    assert library.name == "little.lib"
    odd = liberty.with_name("odd.lib")
    odd.write_bytes(b"/* \xb5m2 */" + liberty.read_bytes())
    assert Library.read(odd).data.strip() == library.data.strip()
    assert Library.read(odd).sha256 == hashlib.sha256(odd.read_bytes()).hexdigest()
    assert Library.read(odd).cells == library.cells
    # A compressed file with the NAND gates and a file with all other cells are read as one library.
    lines = library.text.splitlines()
    gates, rest = tmp_path / "gates.lib.gz", tmp_path / "rest.lib"
    of_gates = "\n".join(line for line in lines if "cell (" not in line or "NAND2" in line)
    gates.write_bytes(gzip.compress(of_gates.encode()))
    rest.write_text("\n".join(line for line in lines if "NAND2" not in line))
    both = Library.read(gates, rest)
    assert both.name == "gates.lib.gz + rest.lib"
    assert {*both.cells} == {*library.cells}
    assert len(both.sha256.split()) == 2
    with pytest.raises(FileError, match=r"rest\.lib has cell INV, which an earlier file also has$"):
        Library.read(rest, rest)
    other = tmp_path / "fast.lib"
    other.write_text(rest.read_text().replace('time_unit : "1ns"', 'time_unit : "1ps"'))
    with pytest.raises(FileError, match=r"has time_unit 1ps, but .*gates\.lib\.gz has 1ns: the corners differ$"):
        Library.read(gates, other)
    gates.write_bytes(gates.read_bytes()[:-20])
    with pytest.raises(FileError, match=r"^.*gates\.lib\.gz cannot be decompressed \("):
        Library.read(gates)


def test_rejected_files(library: Library, tmp_path: Path) -> None:
    """Files without cells or with invalid areas, and deeply nested or unclosed groups and comments, are rejected."""
    path = tmp_path / "file.lib"
    area = r"(\(NAND2\w*\) \{ area : )\d+"
    for text, message in (
        *((text, " is not a liberty file that holds cells")
          for text in ("", "module m; endmodule\n", "library (empty) { }",
                       "/* library (x) { cell (A) { area : 1; } } */", library.text.rstrip().removesuffix("}"))),
        *((re.sub(area, rf"\g<1>{word}", library.text),
           rf" states the area {re.escape(word)} for cell NAND2\w*, not a number of 0 or more")
          for word in ("3e", "1-2", "-4", "1e999", ".")),
        *((library.text.replace("capacitance : 0.001", new),
           f" states the {new.replace(' :', '')} for pin A of cell INV, not a number of 0 or more")
          for new in ("capacitance : -1", "rise_capacitance : -0.5", "fall_capacitance : x")),
        (library.text.replace("area : 4;", "area 4;"), r" is not a liberty file: line \d+ is not a statement"),
        (f"{library.text} /* more", r" is not a liberty file: line \d+ is not a statement"),
        ("library (x) {" + "a (b) {" * 60_000, " have more than 20 nesting levels"),
    ):  # fmt: skip
        path.write_text(text)
        with pytest.raises(FileError, match=rf"^(the groups of )?\S*file\.lib{message}$"):
            Library.read(path)
    for place, reason in ((tmp_path / "missing.lib", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(FileError, match=rf"cannot be read \({reason}\)$"):
            Library.read(place)


def test_energy_tables_and_libraries_without_them() -> None:
    cells = CellLibrary.of(LIBRARY)
    assert cells.voltage == VOLTAGE
    nand, flop = cells.electrical["NAND2"], cells.electrical["FLOP"]
    assert nand.pins["A"].capacitance == CAPACITANCE
    arcs = nand.pins["Y"].energies
    assert [(arc.related, arc.share) for arc in arcs] == [("A", 0.5), ("B", 0.5)]
    for arc in arcs:
        assert (arc.tables["rise"].at(0.0, 0.0), arc.tables["rise"].at(1.0, 0.0)) == RISE
        assert arc.tables["fall"].at(0.5, 9.0) == sum(FALL) / 2
    assert (flop.data, flop.clock, flop.states) == ("D", "K", ("IQ", "IQN"))
    for state in ("!D", "D'", "( !D )"):
        text = TEXT.replace('next_state : "D"', f'next_state : "{state}"').replace('_on : "K"', '_on : "(K)"')
        inverted = CellLibrary.of(Library("power.lib", text)).electrical["FLOP"]
        assert (inverted.data, inverted.clock, inverted.states) == ("D", "K", ("IQN", "IQ"))
    assert flop.pins["K"].energies[0].tables["rise"].at(0.3, 0.1) == OF_CLOCK
    table = Table((0.0, 2.0), (0.0, 1.0), ((0.0, 1.0), (4.0, 5.0)))
    assert table.at(1.0, 0.5) == 2.5
    assert table.at(3.0, 0.0) == 6.0
    assert table.at(0.0, 2.0) == 2.0
    unread = "has tables or numbers that cannot be read"
    for old, new, message in (
        ("internal_power", "no_power", "has no energies: no cell has a group internal_power"),
        ("(1, pf)", "(1, uf)", "has capacitances in uf, not in pf or ff"),
        *(("0.25, 1.25", new, unread) for new in ("0.25, 1.25, 2", "0.25, nan")),
        *((old, new, unread) for old, new in (("2.0", "VDD"), ("(1,", "(-1,"), ("late (energy_by", "late (by"))),
        ("nom_voltage : 2.0", 'voltage_unit : "1hp"', "has the voltage_unit 1hp, not a number of V, mV, uV, ..."),
        *(("nom_voltage : 2.0;", new, "does not state a nominal voltage above 0") for new in ("", "nom_voltage : 0;")),
    ):
        with pytest.raises(Error, match=f"^power.lib {message}$"):
            CellLibrary.of(Library("power.lib", TEXT.replace(old, new)))


def test_units_conditions_and_ground_pins_of_energies() -> None:
    """Energies are in pJ, weighted by the share of input states in which their condition holds, without ground pins."""

    def arc(values: str, *attributes: str) -> str:
        return f'internal_power () {{ {" ".join(attributes)} power (scalar) {{ values ("{values}"); }} }}'

    a = [arc("8", 'when : "!B Y";'), arc("100", 'when : "!B Y";', "related_pg_pin : VSS;")]
    y = [
        arc("4", 'related_pin : "A B";', 'when : "B C";', "related_pg_pin : VDD;"),
        arc("2", 'related_pin : "A";', 'when : "B !C+!B";', "related_pg_pin : VDD;"),
        arc("100", 'related_pin : "A";', "related_pg_pin : VSS;"),
    ]
    text = f"""library (small) {{
        capacitive_load_unit (2, ff); voltage_unit : "100mV"; nom_voltage : 7.0000e+00; nom_temperature : 25.00;
        cell (NAND3) {{ area : 1;
            pg_pin (VDD) {{ pg_type : primary_power; }} pg_pin (VSS) {{ pg_type : primary_ground; }}
            pin (A) {{ direction : input; capacitance : 3; {" ".join(a)} }}
            pin (B) {{ direction : input; }} pin (C) {{ direction : input; }}
            pin (Y) {{ direction : output; function : "!(A B C)"; {" ".join(y)} }} }} }}"""
    cells = CellLibrary.of(Library("small.lib", text))
    nand = cells.electrical["NAND3"]
    assert cells.voltage == pytest.approx(0.7)
    assert cells.library.corner == "7.0000e+00 x 100mV, 25 C, loads in 2 ff"
    # The unit of energy is 2 fF times (0.1 V)^2, which is 2e-5 pJ.
    assert nand.pins["A"].capacitance == pytest.approx(3 * 2e-3)
    values = {pin: [(one.share, one.tables["fall"].at(0, 0)) for one in nand.pins[pin].energies] for pin in "AY"}
    assert [share for share, _ in values["A"]] == [0.5, 0.0]
    assert [share for share, _ in values["Y"]] == [0.2, 0.2, 0.6, 0.0]
    assert [value for _, value in values["Y"]] == pytest.approx([8e-5, 8e-5, 4e-5, 2e-3])
    with pytest.raises(Error, match=r"^small.lib has the voltage_unit 1kV, not a number of V, mV, uV, \.\.\.$"):
        CellLibrary.of(Library("small.lib", text.replace("100mV", "1kV")))


def test_cells_that_synthesis_does_not_use(library: Library, tmp_path: Path) -> None:
    path = tmp_path / "cells.lib"
    renamed = library.text.replace("(NAND2)", "(NAND2xp5_ASAP7_75t_R)")
    path.write_text(renamed.replace("(BUF) {", "(BUF) { dont_use : true;"))
    assert {cell.name for cell in library.cells} - {cell.name for cell in Library.read(path).cells} == {"NAND2", "BUF"}
    assert Library.read(path).nand2.name == "BIG_NAND2"
    every = Library.read(path, dont_use=())
    assert "NAND2xp5_ASAP7_75t_R" in {cell.name for cell in every.cells}
    assert every.nand2.name == "BIG_NAND2"
    with pytest.raises(FileError, match=r"^cells\.lib has no cell that synthesis may use$"):
        Library.read(path, dont_use=("*",))


def test_flip_flops_with_inverted_outputs(library: Library) -> None:
    """Synthesis uses the smaller flip-flop. For an inverting flip-flop, the area of an inverter (2) is added."""
    for area, name in ((13, "NFLOP"), (15, "FLOP")):
        inverting = (
            f'cell (NFLOP) {{ area : {area}; ff (IQ, IQN) {{ next_state : "!D"; clocked_on : "K"; }} '
            "pin (D) { direction : input; } pin (K) { direction : input; } "
            'pin (QN) { direction : output; function : "IQ"; } }'
        )
        both = Library("both.lib", library.text.rstrip().removesuffix("}") + inverting + "}")
        assert (both.flip_flop.name, [cell.inverts for cell in both.cells][-2:]) == (name, [False, True])
        assert ("NFLOP" in both.registers.decode()) == (name == "NFLOP")


def test_hostile_text(library: Library, tmp_path: Path) -> None:
    """Unclosed comments stay in the text, cells with 3000 pins are ignored, and long expressions are rejected.

    The search for comments takes linear time, although each "/*" could start a comment.
    """
    assert plain("a /* b\n */ /* " + "/* " * (1 << 20)) == "a  \n /* " + "/* " * (1 << 20)
    path = tmp_path / "wide.lib"
    pins = "".join(f"pin (A{i}) {{ direction : input; }}" for i in range(3000))
    path.write_text(library.text.replace("cell (BUF) {", f"cell (WIDE) {{ area : 1; {pins} }} cell (BUF) {{"))
    assert Library.read(path).cells == library.cells
    for length in (400, 100_000):
        with pytest.raises(ValueError, match=r"operand"):
            computing("(" * length)
