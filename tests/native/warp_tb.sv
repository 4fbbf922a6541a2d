// Testbench: compares random instructions of an emitted warp, with gaps between instructions and stalls of results,
// with libsptc. Plusargs: +instructions=N sets the number of instructions; +verilator+seed+S, an argument of Verilator,
// sets the seed.
`include "sptc_dpi.svh"
`include "datapath.svh"
`include "stimulus.svh"

module warp_tb;
    import datapath::*;
    import stimulus::*;

    localparam int LANES = 32, ROWS = 16, MOST_REGISTERS = 4, MOST_SELECTORS = 4, SILICON = 2, LONGEST_WAIT = 2000;

    bit clk = 0, rst = 0, offered = 0, taken = 0;
    bit [OPERANDS_BITS-1:0] operands;
    wire [RESULT_BITS-1:0] result;
    wire accepts, delivers;
    warp dut (.clk, .rst, .i__valid(offered), .i__ready(accepts), .i__payload(operands), .o__valid(delivers),
              .o__ready(taken), .o__payload(result));
    always #5 clk = ~clk;

    typedef struct {
        int instruction, selector;
        bit [OPERANDS_BITS-1:0] operands;
        bit [RESULT_BITS-1:0] result;
    } expected_t;

    chandle handles [INSTRUCTIONS];
    expected_t next, expected [$];  // instruction at the input, and instructions in flight
    int unsigned a [LANES*MOST_REGISTERS], b [LANES*MOST_REGISTERS], c [LANES*MOST_REGISTERS], d [LANES*MOST_REGISTERS];
    int unsigned e [LANES], undefined [ROWS], none [1];
    int ids [4];
    int drawn [INSTRUCTIONS][MOST_SELECTORS];
    longint unsigned instructions = 200, undefined_nibbles = 0, gaps = 0, stalls = 0;

    function automatic void multiply(int number, int selector);
        if (sptc_dpi_mma(handles[number], a, b, c, e, selector, SILICON, none, none, ids, d) != 0)
            $fatal(1, "%s: %s", TEXTS[number], sptc_dpi_error(handles[number]));
    endfunction

    // Replaces an element in a few registers of A and of B by a zero, subnormal, special or huge number.
    function automatic void plant(int number);
        for (int times = int'($urandom_range(8)); times > 0; times--) begin
            int place = int'($urandom_range(LANES * REGISTERS[number][OF_A] - 1));
            a[place] = planted(a[place], number, OF_A);
            place = int'($urandom_range(LANES * REGISTERS[number][OF_B] - 1));
            b[place] = planted(b[place], number, OF_B);
        end
    endfunction

    function automatic void draw_operands(int number, int selector);
        distribution_t distribution = distribution_t'($urandom_range(DISTRIBUTIONS - 1));
        int centre_a = drawn_centre(number, OF_A), centre_b = drawn_centre(number, OF_B);
        int centre_c = drawn_centre(number, OF_C);
        bit defined = one_in(2), residues = one_in(2), only_products = one_in(8);
        for (int place = 0; place < LANES * REGISTERS[number][OF_A]; place++) begin
            int to_left = place - REGISTERS[number][OF_A];  // the same register of the previous lane
            bit first = place / REGISTERS[number][OF_A] % 2 == 0;
            a[place] = drawn_word(number, OF_A, distribution, centre_a, first ? 0 : a[to_left], first);
        end
        for (int place = 0; place < LANES * REGISTERS[number][OF_B]; place++) begin
            bit first = place % (4 * REGISTERS[number][OF_B]) == 0;  // four lanes hold a column
            b[place] = drawn_word(number, OF_B, distribution, centre_b, first ? 0 : b[place-1], first);
        end
        for (int place = 0; place < LANES * REGISTERS[number][OF_C]; place++)
            c[place] = only_products ? 0 : drawn_word(number, OF_C, distribution, centre_c, 0, 1);
        foreach (e[lane]) e[lane] = drawn_nibbles(number, defined);
        if (FACTS[number][INTEGER] != 0) return;
        if (one_in(4)) plant(number);
        if (one_in(3)) begin
            foreach (c[place]) c[place] = 0;
            multiply(number, selector);
            foreach (c[place]) c[place] = near_sums(d[place], number, residues);
        end
    endfunction

    // Returns the registers of a lane for the operand port. Registers that the instruction does not use are noise.
    function automatic bit [32*MOST_REGISTERS-1:0] lane_of(const ref int unsigned held [LANES*MOST_REGISTERS],
                                                           input int lane, int registers);
        bit [32*MOST_REGISTERS-1:0] bits;
        for (int register = 0; register < MOST_REGISTERS; register++)
            bits[32*register+:32] = register < registers ? held[lane*registers+register] : one_in(2) ? '1 : $urandom();
        return bits;
    endfunction

    function automatic void complete(int number, int selector);
        next.result = '0;
        for (int word = 0; word < OPERANDS_BITS / 32; word++) next.operands[32*word+:32] = $urandom();
        for (int lane = 0; lane < LANES; lane++) begin
            next.operands[OPERANDS_A+128*lane+:128] = lane_of(a, lane, REGISTERS[number][OF_A]);
            next.operands[OPERANDS_B+128*lane+:128] = lane_of(b, lane, REGISTERS[number][OF_B]);
            next.operands[OPERANDS_C+128*lane+:128] = lane_of(c, lane, REGISTERS[number][OF_C]);
            next.operands[OPERANDS_E+32*lane+:32] = e[lane];
            for (int register = 0; register < REGISTERS[number][OF_C]; register++)
                next.result[RESULT_D+128*lane+32*register+:32] = d[lane*REGISTERS[number][OF_C]+register];
        end
        next.operands[OPERANDS_CONTROL+:OPERANDS_CONTROL_BITS] = OPERANDS_CONTROL_BITS'(FACTS[number][CONTROL]);
        next.operands[OPERANDS_LONG] = REGISTERS[number][OF_A] == MOST_REGISTERS;
        next.operands[OPERANDS_SPARSITY_SELECTOR+:2] = FACTS[number][SPARSE] != 0 ? 2'(selector) : 2'($urandom());
        if (FACTS[number][SPARSE] == 0) return;
        if (sptc_dpi_metadata(handles[number], e, selector, undefined) != 0)
            $fatal(1, "%s: %s", TEXTS[number], sptc_dpi_error(handles[number]));
        foreach (undefined[row]) next.result[RESULT_ILLEGAL+16*row+:16] = 16'(undefined[row]);
        if (next.result[RESULT_ILLEGAL+:RESULT_ILLEGAL_BITS] != 0) undefined_nibbles++;
    endfunction

    function automatic void draw_next();
        int number = int'($urandom_range(INSTRUCTIONS - 1)), selector = int'($urandom_range(SELECTORS[number][0] - 1));
        drawn[number][selector]++;
        next.instruction = number;
        next.selector = selector;
        draw_operands(number, selector);
        multiply(number, selector);
        complete(number, selector);
    endfunction

    function automatic void check(expected_t item);
        if (result === item.result) return;
        $display("MISMATCH %s selector %0d", TEXTS[item.instruction], item.selector);
        for (int lane = 0; lane < LANES; lane++)
            $display("  lane %0d: a %h b %h c %h e %h d %h, expected %h", lane, item.operands[OPERANDS_A+128*lane+:128],
                     item.operands[OPERANDS_B+128*lane+:128], item.operands[OPERANDS_C+128*lane+:128],
                     item.operands[OPERANDS_E+32*lane+:32], result[RESULT_D+128*lane+:128],
                     item.result[RESULT_D+128*lane+:128]);
        $display("  flags %h, expected %h", result[RESULT_ILLEGAL+:RESULT_ILLEGAL_BITS],
                 item.result[RESULT_ILLEGAL+:RESULT_ILLEGAL_BITS]);
        $fatal(1, "the warp differs from libsptc");
    endfunction

    initial begin
        longint unsigned delivered = 0;
        int phase = 0, offers = 1, takes = 1, waited = 0;  // probabilities: 1/offers (input), 1/takes (output)
        bit accepted = 1, stalled = 0;
        void'($value$plusargs("instructions=%d", instructions));
        for (int number = 0; number < INSTRUCTIONS; number++) begin
            handles[number] = sptc_dpi_open(TEXTS[number], ARCHITECTURE);
            if (sptc_dpi_error(handles[number]) != "") $fatal(1, "%s", sptc_dpi_error(handles[number]));
        end
        while (delivered < instructions) begin
            @(negedge clk);
            if (phase == 0) begin  // a new phase: back to back, with gaps, with stalls, or with both
                phase = 20 + int'($urandom_range(200));
                offers = one_in(2) ? 1 : 1 << $urandom_range(5);
                takes = one_in(2) ? 1 : 1 << $urandom_range(5);
            end
            phase--;
            if (accepted) begin
                offered = one_in(offers);
                if (offered) draw_next();
                else gaps++;
                operands = offered ? next.operands : ~operands;
            end
            taken = one_in(takes);
            #1;  // the outputs of the warp settle
            if (stalled && !delivers) $fatal(1, "a result disappeared before it was accepted");
            if (delivers && expected.size() == 0) $fatal(1, "a result without a pending instruction");
            if (delivers) check(expected[0]);
            if (delivers && taken) begin
                void'(expected.pop_front());
                delivered++;
            end
            stalled = delivers && !taken;
            if (stalled) stalls++;
            accepted = !offered || accepts;
            if (offered && accepts) expected.push_back(next);
            waited = delivers || expected.size() == 0 && accepted ? 0 : waited + 1;
            if (waited > LONGEST_WAIT) $fatal(1, "MISMATCH no result of %0d instructions", expected.size());
        end
        foreach (drawn[number, selector])
            if (selector < SELECTORS[number][0] && drawn[number][selector] == 0 && instructions > 5000)
                $fatal(1, "%s was not drawn with selector %0d", TEXTS[number], selector);
        foreach (handles[number]) sptc_dpi_close(handles[number]);
        $display("%0d instructions of %0d texts, %0d with undefined nibbles, %0d gaps, %0d stalls: all equal",
                 delivered, INSTRUCTIONS, undefined_nibbles, gaps, stalls);
        $finish;
    end
endmodule
