// A row by its netlist of single faults: +fault=N selects one, by default none.
`include "datapath.svh"

module row
    import datapath::*;
(
    input clk, rst, enable,
    input [STEP_BITS-1:0] step,
    output [RESULT_BITS-1:0] result
);
    bit [15:0] fault = 0;
    initial void'($value$plusargs("fault=%d", fault));
    bench dut (.clk, .rst, .enable, .step, .result, .active_fault(fault));
endmodule
