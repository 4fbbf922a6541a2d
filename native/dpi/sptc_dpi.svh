// DPI imports that make libsptc a reference model in SystemVerilog. A function that returns an int returns an
// sptc_status, which is 0 if the function succeeded. If it failed, sptc_dpi_error() states the reason in one sentence.
// Compile sptc_dpi.cpp with the testbench and link libsptc.
`ifndef SPTC_DPI_SVH
`define SPTC_DPI_SVH

// Opens an instruction on an architecture, for example "sm_90". sptc_dpi_error() returns an empty string if the
// instruction was opened.
import "DPI-C" function chandle sptc_dpi_open(input string text, input string architecture);
import "DPI-C" function void sptc_dpi_close(input chandle instruction);
import "DPI-C" function string sptc_dpi_error(input chandle instruction);

// Computes one output of an instruction: the dot product of a row of stored A and a column of B, plus an accumulator.
// Elements and nibbles are packed from bit 0 on; a 16-bit accumulator or result is in the low half. Every nibble is
// computed as the multiplexers of the hardware do. Bit i of `illegal` is set if the nibble of chunk i is undefined. A
// block scale is one byte for each span of K, from bit 0 on.
import "DPI-C" function int sptc_dpi_step(
    input chandle instruction,
    input bit [255:0] a,
    input bit [511:0] b,
    input bit [63:0] nibbles,
    input bit [31:0] scale_a,
    input bit [31:0] scale_b,
    input bit [31:0] c,
    output bit [31:0] d,
    output bit [15:0] illegal
);

// Computes one mma or mma.sp of a warp. The open arrays contain 32-bit registers, thread by thread. For an operand that
// the instruction does not have, pass an array of one element, whose value has no effect. `metadata` is the policy for
// undefined nibbles: 0 strict (fail), 1 software (accept nibble 0 for a chunk of zeros), 2 silicon (compute all).
import "DPI-C" function int sptc_dpi_mma(
    input chandle instruction,
    input int unsigned a[],
    input int unsigned b[],
    input int unsigned c[],
    input int unsigned e[],
    input int selector,
    input int metadata,
    input int unsigned scale_a[],
    input int unsigned scale_b[],
    input int scale_ids[],  // byte-id and thread-id of A, then byte-id and thread-id of B
    output int unsigned d[]
);

// Checks the metadata of one mma.sp of a warp, or of one wgmma.sp of a warpgroup. `undefined` has one word for each row
// of A; bit i of a word is set if the nibble of chunk i is undefined.
import "DPI-C" function int sptc_dpi_metadata(
    input chandle instruction,
    input int unsigned e[],
    input int selector,
    output int unsigned undefined[]
);

// Computes one wgmma or wgmma.sp of a warpgroup: D = A B + D, or D = A B if `scale_d` is 0. `smem` is an image of
// shared memory, which contains B at its descriptor. A is in the registers `a` if `a_in_registers` is 1; otherwise A is
// in `smem` at its descriptor.
import "DPI-C" function int sptc_dpi_wgmma(
    input chandle instruction,
    input bit a_in_registers,
    input int unsigned a[],
    input longint unsigned a_descriptor,
    input longint unsigned b_descriptor,
    input int unsigned e[],
    input int selector,
    input int metadata,
    input byte unsigned smem[],
    input bit scale_d,
    inout int unsigned d[]
);

`endif
