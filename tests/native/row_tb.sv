// Testbench: compares random steps of an emitted row, with gaps between steps, with libsptc. Plusargs: +steps=N sets
// the number of steps; +verilator+seed+S, an argument of Verilator, sets the seed.
`include "sptc_dpi.svh"
`include "datapath.svh"
`include "stimulus.svh"

module row_tb;
    import datapath::*;
    import stimulus::*;

    bit clk = 0, rst = 0, enable = 0;
    bit [STEP_BITS-1:0] step;
    wire [RESULT_BITS-1:0] result;
    row dut (.clk, .rst, .enable, .step, .result);
    always #5 clk = ~clk;

    typedef struct {
        int instruction;
        bit [255:0] a;
        bit [511:0] b;
        bit [63:0] nibbles;
        bit [31:0] c, d;
        bit [15:0] illegal;
        bit overflow, overflows;  // overflow input (from the step before), and expected overflow output
    } expected_t;

    chandle handles [INSTRUCTIONS];
    expected_t expected [$];
    longint unsigned steps = 1000, undefined_nibbles = 0, gaps = 0;
    int drawn [INSTRUCTIONS];

    // Returns libsptc's result of a step with accumulator `c`, and the flags of undefined nibbles.
    function automatic bit [31:0] computed(expected_t e, bit [31:0] c, output bit [15:0] illegal);
        bit [31:0] d;
        if (sptc_dpi_step(handles[e.instruction], e.a, e.b, e.nibbles, 32'h0, 32'h0, c, d, illegal) != 0)
            $fatal(1, "%s: %s", TEXTS[e.instruction], sptc_dpi_error(handles[e.instruction]));
        return d;
    endfunction

    function automatic expected_t drawn_step();
        expected_t e;
        int number = int'($urandom_range(INSTRUCTIONS - 1));
        distribution_t distribution = distribution_t'($urandom_range(DISTRIBUTIONS - 1));
        int centre_a = drawn_centre(number, OF_A), centre_b = drawn_centre(number, OF_B);
        bit defined = one_in(2);
        e.instruction = number;
        drawn[number]++;
        for (int word = 0; word < 8; word++)
            e.a[32*word+:32] = drawn_word(number, OF_A, distribution, centre_a, word == 0 ? 0 : e.a[32*(word-1)+:32],
                                          word % 2 == 0);
        for (int word = 0; word < 16; word++)
            e.b[32*word+:32] = drawn_word(number, OF_B, distribution, centre_b, word == 0 ? 0 : e.b[32*(word-1)+:32],
                                          word == 0);
        for (int half = 0; half < 2; half++) e.nibbles[32*half+:32] = drawn_nibbles(number, defined);
        e.c = one_in(8) ? 0 : drawn_word(number, OF_C, distribution, drawn_centre(number, OF_C), 0, 1);
        e.overflow = one_in(2);
        if (FACTS[number][INTEGER] != 0) complete_integer(e);
        else complete_float(e);
        if (e.illegal != 0) undefined_nibbles++;
        return e;
    endfunction

    function automatic void complete_float(inout expected_t e);
        int number = e.instruction;
        if (one_in(4)) begin
            int a = int'($urandom_range(STEP_A_BITS / 32 - 1)), b = int'($urandom_range(STEP_B_BITS / 32 - 1));
            e.a[32*a+:32] = planted(e.a[32*a+:32], number, OF_A);
            e.b[32*b+:32] = planted(e.b[32*b+:32], number, OF_B);
        end
        if (one_in(3)) e.c = near_sums(computed(e, 0, e.illegal), number, one_in(2));
        e.d = computed(e, e.c, e.illegal);
        e.overflows = 0;
    endfunction

    // Computes the expected result of an integer step. The accumulator of a step may exceed 32 bits slightly, but
    // libsptc accepts 32-bit accumulators only. libsptc therefore computes the sum of the products, and the testbench
    // adds the accumulator.
    function automatic void complete_integer(inout expected_t e);
        e.overflow &= e.c[30:18] == {13{~e.c[31]}};
        add_products(e);
    endfunction

    function automatic void add_products(inout expected_t e);
        longint products = longint'($signed(computed(e, 0, e.illegal)));
        longint total = longint'($signed({e.c[31] ^ e.overflow, e.c})) + products;
        bit clamps = FACTS[e.instruction][SATURATES] != 0, beyond = total != longint'(int'(total));
        e.d = clamps && beyond ? {total < 0, {31{total >= 0}}} : 32'(total);
        e.overflows = beyond && !clamps;
        if (!e.overflow && e.d != computed(e, e.c, e.illegal)) $fatal(1, "libsptc adds %h differently", e.c);
    endfunction

    // Returns the input of the row for a step: bytes of B and nibbles are in the order of the row's multiplexers. The
    // block scales are random, since none of the instructions has block scales.
    function automatic bit [STEP_BITS-1:0] as_taken(expected_t e);  /*verilator no_inline_task*/
        bit [STEP_BITS-1:0] bits = '0;
        bit wide = FACTS[e.instruction][WIDE] != 0, sparse = FACTS[e.instruction][SPARSE] != 0;
        bits[STEP_A+:STEP_A_BITS] = STEP_A_BITS'(e.a);
        for (int place = 0; place < STEP_B_BITS / 8; place++) begin
            int from = BYTES_OF_B[2*wide+sparse][place];
            bits[STEP_B+8*place+:8] = from >= 0 ? e.b[8*from+:8] : 8'($urandom());
        end
        for (int lane = 0; lane < STEP_METADATA_BITS / 4; lane++)
            bits[STEP_METADATA+4*lane+:4] = sparse ? e.nibbles[4*NIBBLES_OF_ROW[wide][lane]+:4] : 4'b0100;
        bits[STEP_C+:32] = e.c;
        bits[STEP_SCALE_A+:32] = $urandom();
        bits[STEP_SCALE_B+:32] = $urandom();
        bits[STEP_CONTROL+:STEP_CONTROL_BITS] = STEP_CONTROL_BITS'(FACTS[e.instruction][CONTROL]);
        bits[STEP_OVERFLOW] = e.overflow;
        return bits;
    endfunction

    function automatic void check(expected_t e);
        bit [31:0] d = result[RESULT_D+:32];
        bit [15:0] illegal = 16'(result[RESULT_ILLEGAL+:RESULT_ILLEGAL_BITS]);
        if (d !== e.d || illegal !== e.illegal || result[RESULT_OVERFLOW] !== e.overflows) begin
            $display("MISMATCH %s", TEXTS[e.instruction]);
            $display("  a %h\n  b %h\n  nibbles %h c %h overflow %b", e.a, e.b, e.nibbles, e.c, e.overflow);
            $display("  d %h, expected %h; flags %h, expected %h; overflow %b, expected %b", d, e.d, illegal, e.illegal,
                     result[RESULT_OVERFLOW], e.overflows);
            $fatal(1, "the row differs from libsptc");
        end
    endfunction

    initial begin
        longint unsigned entered = 0, left = 0;
        void'($value$plusargs("steps=%d", steps));
        for (int number = 0; number < INSTRUCTIONS; number++) begin
            handles[number] = sptc_dpi_open(TEXTS[number], ARCHITECTURE);
            if (sptc_dpi_error(handles[number]) != "") $fatal(1, "%s", sptc_dpi_error(handles[number]));
        end
        while (left < steps) begin
            @(negedge clk);
            if (enable && entered >= LATENCY) begin
                check(expected.pop_front());
                left++;
            end
            enable = $urandom_range(7) != 0;
            if (enable) begin
                automatic expected_t next = drawn_step();
                expected.push_back(next);
                step = as_taken(next);
                entered++;
            end else begin
                step = ~step;  // the result must not depend on the input while `enable` is 0
                gaps++;
            end
        end
        foreach (drawn[number]) if (drawn[number] == 0 && steps > 1000) $fatal(1, "%s was not drawn", TEXTS[number]);
        foreach (handles[number]) sptc_dpi_close(handles[number]);
        $display("%0d steps of %0d instructions, %0d with undefined nibbles, %0d gaps: all equal", left, INSTRUCTIONS,
                 undefined_nibbles, gaps);
        $finish;
    end
endmodule
