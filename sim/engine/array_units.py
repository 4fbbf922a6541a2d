"""Units of what holds many of them, as models of their own, in a library of their own, which its model clocks.

One model of it all would be built of as many copies of a unit as there are, and take gigabytes; and units for one kind
of instruction can take their place.
"""

from dataclasses import dataclass
from pathlib import Path

from ...rtl.config import CoreConfig
from ...rtl.emit import unit_of
from ...rtl.step import unit_result_layout, unit_step_layout
from ...rtl.warp import Warp

__all__ = ["CALLED", "FUNCTIONS", "UNIT", "StandIn", "unit_drivers", "unit_module"]

#: The module of a unit.
UNIT = "dot"
#: What a library of units has, in the order of `Library`.
FUNCTIONS = ("create", "destroy", "add", "clock")
#: The unit as a model sees it. Its results come out of registers, so that nothing passes it in a cycle.
_UNIT_MODULE = """
module {name}(input [{step}:0] step, input clk, input rst, input enable, output reg [{result}:0] result);
    import "DPI-C" function chandle unit_create();
    import "DPI-C" function void unit_clock(
        input chandle unit, input bit [{step}:0] step, output bit [{result}:0] result
    );
    chandle unit;
    bit [{result}:0] following;
    initial unit = unit_create();
    always @(posedge clk) if (enable) begin
        unit_clock(unit, step, following);
        result <= following;
    end
endmodule
"""
#: What a driver begins with: `evaluated` is told whose units a model's are before the model is made or evaluated.
CALLED = """
// A library of units.
struct Library {
    void* (*create)(int);
    void (*destroy)(void*);
    void* (*add)(void*);
    void (*clock)(void*, void*, const uint32_t*, uint32_t*);
};
// Those of a model.
struct UnitsOfModel {
    Library library;
    void* made;
    UnitsOfModel(const Library& of, int threads) : library(of), made(of.create(threads)) {}
    ~UnitsOfModel() { library.destroy(made); }
};
namespace { thread_local UnitsOfModel* evaluated; }
void* unit_create() { return evaluated->library.add(evaluated->made); }
void unit_clock(void* unit, const svBitVecVal* step, svBitVecVal* result) {
    evaluated->library.clock(evaluated->made, unit, step, result);
}
"""
_CLOCKED = """
#include <vector>

namespace {{
struct Units {{
    std::vector<Vdot*> all;
    ~Units() {{ for (Vdot* unit : all) delete unit; }}
}};
}}  // namespace
extern "C" void* units_create(int) {{ return new Units; }}
extern "C" void units_destroy(void* units) {{ delete static_cast<Units*>(units); }}
extern "C" void* units_add(void* units) {{
    Vdot* unit = new Vdot;
    unit->enable = 1;
    unit->clk = 0;
    unit->eval();
    static_cast<Units*>(units)->all.push_back(unit);
    return unit;
}}
extern "C" void units_clock(void*, void* of, const uint32_t* step, uint32_t* result) {{
    Vdot& unit = *static_cast<Vdot*>(of);
    std::memcpy(&unit.step, step, {step_words} * 4);
    // Nothing happens at a falling edge: the model is told that the clock fell instead of evaluating it there.
    unit.rootp->__Vtrigprevexpr___TOP__clk__0 = 0;
    unit.clk = 1;
    unit.eval();
    std::memcpy(result, &unit.result, {result_words} * 4);
}}
"""
#: A unit without registers: what is in it waits until the first result of it all is to come out, or, with two threads,
#: until there is as much as all units are given in a cycle and the second thread is free.
_COMPUTED = """
#include <atomic>
#include <chrono>
#include <deque>
#include <thread>
#include <vector>

namespace {{
constexpr size_t latency = {latency}, batch = {batch};
struct Entry {{
    uint32_t step[{step_words}], result[{result_words}];
    std::atomic<bool> is_computed{{true}};
}};
struct Unit {{
    Entry entries[latency];
    size_t next = 0;
}};
void compute_all(std::vector<Entry*>& waiting) {{
    for (size_t first = 0; first < waiting.size(); first += lanes) {{
        const size_t some = waiting.size() - first < lanes ? waiting.size() - first : lanes;
        const uint32_t* steps[lanes];
        uint32_t* results[lanes];
        for (size_t lane = 0; lane < some; lane++) {{
            steps[lane] = waiting[first + lane]->step;
            results[lane] = waiting[first + lane]->result;
        }}
        compute(some, steps, results);
        for (size_t lane = 0; lane < some; lane++)
            waiting[first + lane]->is_computed.store(true, std::memory_order_release);
    }}
    waiting.clear();
}}
// What is not computed is in one of two lists: of the thread that clocks the units, or, while that is busy, of another.
class Units {{
public:
    explicit Units(int threads) {{ if (threads > 1) other = std::thread([this] {{ serve(); }}); }}
    ~Units() {{
        ends = true;
        if (other.joinable()) other.join();
    }}
    void* add() {{ return &all.emplace_back(); }}
    void clock(Unit& unit, const uint32_t* step, uint32_t* result) {{
        Entry& entry = unit.entries[unit.next];
        std::memcpy(entry.step, step, sizeof entry.step);
        entry.is_computed.store(false, std::memory_order_relaxed);
        waiting.push_back(&entry);
        if (other.joinable() && waiting.size() >= batch && !busy.load(std::memory_order_acquire)) {{
            handed.swap(waiting);
            busy.store(true, std::memory_order_release);
        }}
        unit.next = (unit.next + 1) % latency;
        const Entry& oldest = unit.entries[unit.next];
        while (!oldest.is_computed.load(std::memory_order_acquire)) {{
            if (!busy.load(std::memory_order_acquire)) compute_all(waiting);
            else std::this_thread::yield();  // the other may be waiting for this core
        }}
        std::memcpy(result, oldest.result, sizeof oldest.result);
    }}

private:
    std::deque<Unit> all;
    std::vector<Entry*> waiting, handed;
    std::atomic<bool> busy{{false}}, ends{{false}};
    std::thread other;
    void serve() {{
        for (int idle = 0; !ends.load(std::memory_order_relaxed); idle++) {{
            if (busy.load(std::memory_order_acquire)) {{
                compute_all(handed);
                busy.store(false, std::memory_order_release);
                idle = 0;
            }} else if (idle > 100000) {{
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }}
        }}
    }}
}};
}}  // namespace
extern "C" void* units_create(int threads) {{ return new Units(threads); }}
extern "C" void units_destroy(void* units) {{ delete static_cast<Units*>(units); }}
extern "C" void* units_add(void* units) {{ return static_cast<Units*>(units)->add(); }}
extern "C" void units_clock(void* units, void* of, const uint32_t* step, uint32_t* result) {{
    static_cast<Units*>(units)->clock(*static_cast<Unit*>(of), step, result);
}}
"""


@dataclass(frozen=True)
class StandIn:
    """Stand-ins for the arrays of a compiled top: its control and its fetch are built without any datapath.

    Attributes
    ----------
    warp_class : type of Warp
        The component that stands for an array, an instance of the module below.
    module : str
        Verilog of that module, which calls `unit_create` and `unit_clock` as the module of a unit does.
    library : Path
        A shared library of :data:`FUNCTIONS`.
    optimisation : tuple of str
        Options of the C++ compiler for the top.
    """

    warp_class: type[Warp]
    module: str
    library: Path
    optimisation: tuple[str, ...]


def unit_drivers(config: CoreConfig, arrays: int) -> tuple[str, str]:
    """Return the C++ of a library of units: around Verilator's model, and around a function of a step.

    Parameters
    ----------
    config : CoreConfig
        The datapath of an array.
    arrays : int
        Arrays that are clocked together.
    """
    step, result = (-(-layout.size // 32) for layout in (unit_step_layout(config), unit_result_layout()))
    words = {"step_words": step, "result_words": result}
    units = arrays * config.rows * config.columns
    return _CLOCKED.format(**words), _COMPUTED.format(**words, latency=config.latency, batch=units)


def unit_module(config: CoreConfig, top: str) -> str:
    """Return the Verilog module of the unit of a top that clocks a model of :data:`UNIT`."""
    assert config.cuts[-1:] == ("round",), "results must come out of registers"
    step, result = unit_step_layout(config).size - 1, unit_result_layout().size - 1
    return _UNIT_MODULE.format(name=unit_of(top), step=step, result=result)
