// libsptc as a reference in SystemVerilog. Functions that return an int return an sptc_status, 0 if all is well;
// sptc_dpi_error() says in one sentence what is not. Compile sptc_dpi.cpp and link libsptc.
`ifndef SPTC_DPI_SVH
`define SPTC_DPI_SVH

// Opens an instruction on an architecture, for example "sm_90"; sptc_dpi_error() is empty if there is one.
import "DPI-C" function chandle sptc_dpi_open(input string text, input string architecture);
import "DPI-C" function void sptc_dpi_close(input chandle instruction);
import "DPI-C" function string sptc_dpi_error(input chandle instruction);

// One step of a unit: a row of stored A and a column of B of one instruction, elements and nibbles from bit 0 on,
// accumulator and result of 16 bits in the low half. Any nibble is computed as the multiplexers do; bit i of `illegal`
// says that the nibble of chunk i is undefined. Block scales: one byte for each span of K, from bit 0 on.
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

// One mma or mma.sp of a warp: 32-bit registers, thread by thread, in open arrays. Arrays that the instruction does not
// take have one element, which is not looked at. `metadata`: 0 strict, 1 software, 2 silicon.
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
    input int scale_ids[],  // byte and thread id of A, byte and thread id of B
    output int unsigned d[]
);

// The metadata of one mma.sp of a warp or wgmma.sp of a warpgroup, whatever it is, a word for each row of A: bit i says
// that the nibble of chunk i is undefined.
import "DPI-C" function int sptc_dpi_metadata(
    input chandle instruction,
    input int unsigned e[],
    input int selector,
    output int unsigned undefined[]
);

// One wgmma or wgmma.sp of a warpgroup, D = A B + D, B by its descriptor in an image of shared memory, A in registers if
// `a_in_registers`, else by its descriptor.
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
