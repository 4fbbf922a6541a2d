"""What a liberty file says of energy, and what it must say."""

import pytest
from sptc.errors import Error
from sptc.synth.energy.electrical import ElectricalLibrary, Table
from sptc.synth.liberty import Library
from sptc.tests.synth.power_library import CAPACITANCE, FALL, LEAKAGE, LIBRARY, OF_CLOCK, RISE, TEXT, VOLTAGE


def test_what_it_says() -> None:
    electrical = ElectricalLibrary.of(LIBRARY)
    assert (electrical.voltage, electrical.leakage_nanowatts) == (VOLTAGE, 1.0)
    nand, flop = electrical.cells["NAND2"], electrical.cells["FLOP"]
    assert nand.leakage == LEAKAGE
    assert nand.pins["A"].capacitance == CAPACITANCE
    energies = nand.pins["Y"].energies
    assert [pin for pin, _ in energies] == ["A", "B"]
    for _, tables in energies:
        assert (tables["rise"].at(0.0, 0.0), tables["rise"].at(1.0, 0.0)) == RISE
        assert tables["fall"].at(0.5, 9.0) == sum(FALL) / 2
    assert (flop.data, flop.clock, flop.states) == ("D", "K", ("IQ", "IQN"))
    assert flop.pins["K"].energies[0][1]["rise"].at(0.3, 0.1) == OF_CLOCK


def test_between_and_beyond_what_is_tabulated() -> None:
    table = Table((0.0, 2.0), (0.0, 1.0), ((0.0, 1.0), (4.0, 5.0)))
    assert table.at(1.0, 0.5) == 2.5
    assert table.at(3.0, 0.0) == 6.0
    assert table.at(0.0, 2.0) == 2.0


def test_what_it_must_say() -> None:
    for old, new, message in (
        ("internal_power", "no_power", "has no energies, that is no internal_power of any cell"),
        ("(1, pf)", "(1, uf)", "has capacitances in uf, not in pf or ff"),
        ("nom_voltage : 2.0", "nom_voltage : VDD", "has tables or numbers that cannot be read"),
        ("0.25, 1.25", "0.25, 1.25, 2", "has tables or numbers that cannot be read"),
        ("0.25, 1.25", "0.25, nan", "has tables or numbers that cannot be read"),
        ('"1nW"', '"1hp"', "has leakage in 1hp, which is no unit of power"),
        ("nom_voltage : 2.0;", "", "does not say its nominal voltage"),
    ):
        with pytest.raises(Error, match=f"^power.lib {message}$"):
            ElectricalLibrary.of(Library("power.lib", TEXT.replace(old, new)))
