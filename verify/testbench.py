"""SystemVerilog testbenches that drive an emitted top with vectors from files, for Icarus Verilog and Verilator.

Icarus 11 supports neither array parameters nor ``break``, and its random numbers differ from those of Verilator.
"""

from collections.abc import Sequence
from string import Template

from ..rtl.config import CoreConfig
from ..rtl.emit import emit, module_name
from ..sim.benches.systemverilog import ALIKE, units_alike
from .vector_levels import Table

__all__ = ["BENCH", "bench_files"]

#: Name of the file and of the module.
BENCH = "tb"
_UNITS = "units.vlt"
_OPTIONS = "--binary --timing -Wno-fatal -Wno-lint -CFLAGS -std=gnu++20 -MAKEFLAGS CFG_CXXFLAGS_PCH_I=-include"
_HEADER = """\
// Drives $design with the vectors beside this file and compares every result with the expected one; says PASS, or
// FAIL and ends with an error. In this folder, with Icarus Verilog:
//   $$ iverilog -g2012 -o tb.vvp tb.sv $design.v && vvp -n tb.vvp
// and with Verilator 5 (CFLAGS and MAKEFLAGS are for builds of it that were made for another compiler):
//   $$ verilator $options --top-module tb tb.sv $design.v && obj_dir/Vtb
module tb;
  localparam integer VECTORS = $vectors, GIVEN_BITS = $given_bits, RESULT_BITS = $result_bits, SHOWN = 10;

  reg [GIVEN_BITS-1:0] given [0:VECTORS-1];
  reg [RESULT_BITS-1:0] expected [0:VECTORS-1];
  reg clk = 0, rst = 0;
  reg [31:0] state = 32'd$state;  // of a xorshift generator, never 0
  integer wrong = 0, compared = 0;
  wire [RESULT_BITS-1:0] result;
  always #5 clk = ~clk;

  // One of so many cycles, the same ones in every simulator.
  function automatic one_in(input integer cycles);
    begin
      state = state ^ (state << 13);
      state = state ^ (state >> 17);
      state = state ^ (state << 5);
      one_in = (state >> 8) % cycles == 0;
    end
  endfunction

  task read_vectors;
    integer file;
    begin
      file = $$fopen("$given.hex", "r");
      if (file == 0) $$fatal(1, "there is no $given.hex in this folder");
      $$fclose(file);
      file = $$fopen("$result.hex", "r");
      if (file == 0) $$fatal(1, "there is no $result.hex in this folder");
      $$fclose(file);
      $$readmemh("$given.hex", given);
      $$readmemh("$result.hex", expected);
    end
  endtask

  // Compares the next result.
  task compare(input [RESULT_BITS-1:0] wanted, input [RESULT_BITS-1:0] got);
    begin
      if (got !== wanted) begin
        wrong = wrong + 1;
        if (wrong <= SHOWN) begin
$show
        end
      end
      compared = compared + 1;
    end
  endtask

  task finish;
    begin
      wrong = wrong + (VECTORS - compared);  // a result that never came is a wrong one
      if (wrong != 0) begin
        $$display("FAIL %0d of %0d", wrong, VECTORS);
        $$fatal(1, "results differ from those expected");
      end
      $$display("PASS %0d", VECTORS);
      $$finish;
    end
  endtask
"""

_STEPS = """\

  localparam integer LATENCY = $latency;  // enabled clock edges from a step to its result
  reg enable = 0;
  reg [GIVEN_BITS-1:0] step = 0;
  integer entered = 0;
  $design dut ($clock.enable(enable), .step(step), .result(result));

  initial begin
    read_vectors;
    while (compared < VECTORS) begin
      @(negedge clk);
      if (enable && entered >= LATENCY) compare(expected[compared], result);
      enable = !one_in(8);
      // What stands at the inputs while the pipeline waits, or behind the last step, does not matter.
      step = enable && entered < VECTORS ? given[entered] : ~step;
      if (enable) entered = entered + 1;
    end
    finish;
  end
endmodule
"""

_STREAMS = """\

  localparam integer LONGEST_WAIT = $longest_wait;  // cycles without a result that is due
  reg offered = 0, taken = 0, accepted = 1, stalled = 0, broken = 0;
  reg [GIVEN_BITS-1:0] operands = 0;
  wire accepts, delivers;
  integer sent = 0, phase = 0, offers = 1, takes = 1, waited = 0;
  $design dut (.clk(clk), .rst(rst), .i__valid(offered), .i__ready(accepts), .i__payload(operands),
    .o__valid(delivers), .o__ready(taken), .o__payload(result));

  // Says what is wrong with the handshake, and ends.
  task protest(input integer what);
    begin
      if (what == 0) $$display("result %0d was not taken and is gone", compared);
      if (what == 1) $$display("result %0d is of no operands", compared);
      if (what == 2) $$display("result %0d has not come after %0d cycles", compared, LONGEST_WAIT);
      if (what == 3) $$display("result %0d changed while it was not taken", compared);
      broken = 1;
    end
  endtask

  reg [RESULT_BITS-1:0] held;
  initial begin
    read_vectors;
    rst = 1;
    repeat (2) @(negedge clk);
    rst = 0;
    while (compared < VECTORS && !broken) begin
      @(negedge clk);
      if (phase == 0) begin  // back to back, gaps, stalls or both
        phase = 100;
        offers = one_in(2) ? 1 : one_in(2) ? 4 : 16;
        takes = one_in(2) ? 1 : one_in(2) ? 4 : 16;
      end
      phase = phase - 1;
      if (accepted) begin
        offered = sent < VECTORS && one_in(offers);
        operands = offered ? given[sent] : ~operands;
      end
      taken = one_in(takes);
      #1;  // what the warp answers in this cycle
      if (stalled && delivers !== 1) protest(0);
      else if (stalled && result !== held) protest(3);
      else if (delivers === 1 && compared >= sent) protest(1);
      else if (delivers === 1 && taken) compare(expected[compared], result);
      stalled = delivers === 1 && !taken;
      held = result;
      accepted = !offered || accepts === 1;
      if (offered && accepts === 1) sent = sent + 1;
      waited = delivers === 1 || (compared >= sent && accepted) ? 0 : waited + 1;
      if (waited > LONGEST_WAIT) protest(2);
    end
    finish;
  end
endmodule
"""

_SHOW_STEP = """\
          $$display("vector %0d: wanted d %h overflow %b$flags, got d %h overflow %b$flags", compared,
            wanted[31:0], wanted[32]$wanted, got[31:0], got[32]$got);"""
_SHOW_WARP = """\
          for (integer lane = 0; lane < 32; lane = lane + 1)
            if (got[128*lane+:128] !== wanted[128*lane+:128])
              $$display("vector %0d: lane %0d wanted d %h, got d %h", compared, lane, wanted[128*lane+:128],
                got[128*lane+:128]);
          if (got[RESULT_BITS-1:4096] !== wanted[RESULT_BITS-1:4096])
            $$display("vector %0d: wanted flags %h, got flags %h", compared, wanted[RESULT_BITS-1:4096],
              got[RESULT_BITS-1:4096]);"""


def bench_files(config: CoreConfig, top: str, tables: Sequence[Table], seed: int) -> dict[str, str]:
    """Return the files of a testbench by name: the emitted top, and the bench that drives it.

    `top` is ``unit``, ``row`` or ``warp``. The tables are those of the inputs and of the expected outputs, in files of
    their names. The seed decides the random gaps and stalls.
    """
    inputs, results = tables
    design = module_name(config, top)
    streams = top == "warp"
    flags = "" if top == "unit" else " flags %h"
    values = {
        "design": design,
        "given": inputs.name,
        "result": results.name,
        "vectors": inputs.count,
        "given_bits": inputs.bits,
        "result_bits": results.bits,
        "state": seed % ((1 << 32) - 1) + 1,
        "latency": max(1, config.latency),
        "clock": ".clk(clk), .rst(rst), " if config.cuts else "",
        "options": " ".join([_OPTIONS, *ALIKE, _UNITS]) if streams else _OPTIONS,
        "longest_wait": 100 + 2 * config.warp_latency(2) if streams else 0,
        "flags": flags,
    }
    values |= {name: f", {name}[RESULT_BITS-1:33]" if flags else "" for name in ("wanted", "got")}
    values["show"] = Template(_SHOW_WARP if streams else _SHOW_STEP).substitute(values)
    text = Template(_HEADER + (_STREAMS if streams else _STEPS)).substitute(values)
    files = {f"{design}.v": emit(config, top, design), f"{BENCH}.sv": text}
    return files | {_UNITS: units_alike(design)} if streams else files
