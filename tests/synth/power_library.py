"""Liberty text of a few cells with energy tables. All numbers are round, so that tests can state expected energies."""

from sptc.synth.liberty import Library

#: Capacitance of every input pin in pF, and supply voltage in V.
CAPACITANCE, VOLTAGE = 0.01, 2.0
#: Energies in pJ of a rising and of a falling output, each without load and with a load of 1 pF.
RISE, FALL = (0.25, 1.25), (0.75, 1.75)
#: Energy in pJ of a clock edge inside a register.
OF_CLOCK = 0.5


def _table(kind: str, values: tuple[float, ...], template: str) -> str:
    return f'{kind} ({template}) {{ values ("{", ".join(map(str, values))}"); }}'


def _output(pin: str, function: str, related: str) -> str:
    kinds = ("cell_rise", "cell_fall", "rise_transition", "fall_transition")
    delays = " ".join(_table(kind, (0.1,), "scalar") for kind in kinds)
    powers = f"{_table('rise_power', RISE, 'energy_by_load')} {_table('fall_power', FALL, 'energy_by_load')}"
    arcs = " ".join(
        f'timing () {{ related_pin : "{of}"; timing_sense : non_unate; {delays} }} '
        f'internal_power () {{ related_pin : "{of}"; {powers} }}'
        for of in related
    )
    return f'pin ({pin}) {{ direction : output; function : "{function}"; max_capacitance : 1000; {arcs} }}'


def _cell(name: str, area: float, inputs: str, function: str, register: str = "", of_clock: str = "") -> str:
    pins = [f"pin ({pin}) {{ direction : input; capacitance : {CAPACITANCE}; }}" for pin in inputs if pin != "K"]
    pins.append(_output("Q" if register else "Y", function, "K" if register else inputs))
    return f"cell ({name}) {{ area : {area}; {register} {' '.join([*pins, of_clock])} }}"


_CLOCK_PIN = (
    f"pin (K) {{ direction : input; clock : true; capacitance : {CAPACITANCE}; internal_power () {{ "
    f'rise_power (scalar) {{ values ("{OF_CLOCK}"); }} fall_power (scalar) {{ values ("{OF_CLOCK}"); }} }} }}'
)
CELLS = (
    _cell("INV", 2, "A", "!A"),
    _cell("BUF", 3, "A", "A"),
    _cell("NAND2", 4, "AB", "!(A B)"),
    _cell("NOR2", 5, "AB", "(A+B)'"),
    _cell("XOR2", 8, "AB", "A^B"),
    _cell("FLOP", 16, "DK", "IQ", 'ff (IQ, IQN) { next_state : "D"; clocked_on : "K"; }', _CLOCK_PIN),
)
TEXT = "\n".join(
    [
        "library (power) {",
        f'delay_model : table_lookup; time_unit : "1ns"; capacitive_load_unit (1, pf); nom_voltage : {VOLTAGE};',
        'power_lut_template (energy_by_load) { variable_1 : total_output_net_capacitance; index_1 ("0, 1"); }',
        *CELLS,
        "}\n",
    ]
)
LIBRARY = Library("power.lib", TEXT)
