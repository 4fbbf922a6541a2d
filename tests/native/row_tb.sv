// Random steps through an emitted row, with gaps, against libsptc: +steps=N, and +verilator+seed+S of the simulator.
`include "sptc_dpi.svh"
`include "datapath.svh"

module row_tb;
    import datapath::*;

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
    } expected_t;

    chandle handles [INSTRUCTIONS];
    expected_t expected [$];
    longint unsigned steps = 1000, undefined_nibbles = 0, gaps = 0;
    int drawn [INSTRUCTIONS];

    // A word of random bits.
    function automatic bit [511:0] random_bits();
        bit [511:0] bits;
        for (int word = 0; word < 16; word++) bits[32*word+:32] = $urandom();
        return bits;
    endfunction

    // Moves the exponents of elements to within `spread` of that of one; integers stay as they are.
    function automatic bit [511:0] near_one(bit [511:0] bits, int element, int low, int width, int bias, int spread);
        for (int place = 0; width > 0 && place < 512; place += element)
            for (int field = bias - spread + int'($urandom_range(2 * spread)), i = 0; i < width; i++)
                bits[place + low + i] = field[i];
        return bits;
    endfunction

    function automatic expected_t drawn_step();
        expected_t e;
        int number = int'($urandom_range(INSTRUCTIONS - 1)), spread = int'($urandom_range(3));
        bit legal_only = $urandom_range(1) != 0;
        e.instruction = number;
        drawn[number]++;
        e.a = 256'(random_bits());
        e.b = random_bits();
        e.c = $urandom();
        if (spread != 0) begin
            e.a = 256'(near_one(512'(e.a), FACTS[number][ELEMENT], FACTS[number][A_EXPONENT],
                                FACTS[number][A_EXPONENT_BITS], FACTS[number][A_BIAS], spread));
            e.b = near_one(e.b, FACTS[number][ELEMENT], FACTS[number][B_EXPONENT], FACTS[number][B_EXPONENT_BITS],
                           FACTS[number][B_BIAS], spread);
            e.c = {e.c[31], 8'(127 - 4 + int'($urandom_range(8))), e.c[22:0]};
        end
        if (FACTS[number][RESULT] == 16) e.c = {16'h0, e.c[15:0]};
        for (int chunk = 0; chunk < 16; chunk++)
            e.nibbles[4*chunk+:4] = legal_only ? ($urandom_range(1) != 0 ? 4'b0100 : 4'b1110) : 4'($urandom());
        if (sptc_dpi_step(handles[number], e.a, e.b, e.nibbles, 32'h0, 32'h0, e.c, e.d, e.illegal) != 0)
            $fatal(1, "%s: %s", TEXTS[number], sptc_dpi_error(handles[number]));
        if (e.illegal != 0) undefined_nibbles++;
        return e;
    endfunction

    // A step as the row takes it: bytes of B and nibbles in the order of its multiplexers.
    function automatic bit [STEP_BITS-1:0] as_taken(expected_t e);
        bit [STEP_BITS-1:0] bits = '0;
        bit wide = FACTS[e.instruction][WIDE] != 0, sparse = FACTS[e.instruction][SPARSE] != 0;
        bits[STEP_A+:STEP_A_BITS] = STEP_A_BITS'(e.a);
        for (int place = 0; place < STEP_B_BITS / 8; place++) begin
            int from = BYTES_OF_B[2*wide+sparse][place];
            if (from >= 0) bits[STEP_B+8*place+:8] = e.b[8*from+:8];
        end
        for (int lane = 0; lane < STEP_METADATA_BITS / 4; lane++)
            bits[STEP_METADATA+4*lane+:4] = sparse ? e.nibbles[4*NIBBLES_OF_ROW[wide][lane]+:4] : 4'b0100;
        bits[STEP_C+:32] = e.c;
        bits[STEP_CONTROL+:STEP_CONTROL_BITS] = STEP_CONTROL_BITS'(FACTS[e.instruction][CONTROL]);
        return bits;
    endfunction

    function automatic void check(expected_t e);
        bit [31:0] d = result[RESULT_D+:32];
        bit [15:0] illegal = 16'(result[RESULT_ILLEGAL+:RESULT_ILLEGAL_BITS]);
        if (d !== e.d || illegal !== e.illegal) begin
            $display("MISMATCH %s", TEXTS[e.instruction]);
            $display("  a %h\n  b %h\n  nibbles %h c %h", e.a, e.b, e.nibbles, e.c);
            $display("  d %h, wanted %h; flags %h, wanted %h", d, e.d, illegal, e.illegal);
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
                step = {STEP_BITS{1'b1}};  // what stands at the inputs while the pipeline waits does not matter
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
