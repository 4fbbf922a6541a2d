// Package of functions that draw random operands for the instructions of package `datapath`, in words of 32 bits.
package stimulus;
    import datapath::*;

    // Distributions of operands. For integers, all names except ANY_BITS mean numbers at the ends of the range.
    typedef enum int {
        ANY_BITS, NEAR_CENTRE, FEW_BINADES, EVERY_BINADE, SMALLEST, LARGEST, BOTH_ENDS, CANCELLING, MANY_ZEROS,
        SOME_SPECIAL
    } distribution_t;
    localparam int DISTRIBUTIONS = 10;
    localparam int IEEE = 1, NAN_ONLY = 2;  // values of entry SPECIALS in FORMATS

    function automatic bit one_in(int unsigned count);
        return $urandom_range(count - 1) == 0;
    endfunction

    // Returns a code with a random biased exponent from `low` to `high`, limited to the exponents of the format.
    function automatic bit [31:0] finite_code(int number, int operand, int low, int high);  /*verilator no_inline_task*/
        int fraction_bits = FORMATS[number][operand][FRACTION_BITS];
        int largest = FORMATS[number][operand][LARGEST_EXPONENT];
        int exponent = low + int'($urandom_range(high - low));
        bit [31:0] bits = $urandom();
        bit [31:0] ones = (32'h1 << fraction_bits) - 1;
        if (exponent < 0) exponent = 0;
        if (exponent > largest) exponent = largest;
        bits &= ones;
        if (FORMATS[number][operand][SPECIALS] == NAN_ONLY && exponent == largest && bits == ones) bits = 0;
        return bits | 32'(exponent) << fraction_bits | sign_of(number, operand, $urandom());
    endfunction

    function automatic bit [31:0] sign_of(int number, int operand, bit [31:0] noise);
        return 32'(noise[0]) << (FORMATS[number][operand][CODE_BITS] - 1);
    endfunction

    // Returns a zero, a subnormal, an Inf or a NaN, as far as the format has such numbers. Half of the fractions have
    // one set bit, since every single bit must distinguish a subnormal from zero.
    function automatic bit [31:0] special_code(int number, int operand);  /*verilator no_inline_task*/
        int fraction_bits = FORMATS[number][operand][FRACTION_BITS], specials = FORMATS[number][operand][SPECIALS];
        bit [31:0] sign = sign_of(number, operand, $urandom());
        bit [31:0] ones = (32'h1 << fraction_bits) - 1, fraction = $urandom() & ones;
        bit [31:0] top = ((32'h1 << FORMATS[number][operand][EXPONENT_BITS]) - 1) << fraction_bits;
        if (one_in(2)) fraction = 32'h1 << $urandom_range(fraction_bits - 1);
        case ($urandom_range(3))
            0: return sign;
            1: return sign | fraction;
            2: return specials == IEEE ? sign | top : specials == NAN_ONLY ? sign | top | ones : sign;
            default: return specials == IEEE ? sign | top | fraction : sign | fraction;
        endcase
    endfunction

    // Returns an end of an integer's range, 0, 1 or -1. A 32-bit accumulator is up to 2^18 away from the end, so that a
    // sum of products can cross the end.
    function automatic bit [31:0] extreme_integer(int number, int operand);
        int width = FORMATS[number][operand][CODE_BITS];
        bit [31:0] half = 32'h1 << (width - 1);
        bit [31:0] near = width == 32 ? $urandom_range(1 << 18) : 0;
        case ($urandom_range(4))
            0: return 0;
            1: return half + near;
            2: return half - 1 - near;
            3: return '1;
            default: return 1;
        endcase
    endfunction

    // Returns the biased exponent around which the exponents of an operand are drawn: the exponent of the number 1, or
    // a random exponent, so that sums of every magnitude occur.
    function automatic int drawn_centre(int number, int operand);
        if (one_in(2)) return FORMATS[number][operand][BIAS];
        return int'($urandom_range(FORMATS[number][operand][LARGEST_EXPONENT]));
    endfunction

    function automatic bit [31:0] drawn_code(int number, int operand, distribution_t distribution,
                                             int centre);  /*verilator no_inline_task*/
        int largest = FORMATS[number][operand][LARGEST_EXPONENT];
        if (FACTS[number][INTEGER] != 0)
            return distribution == ANY_BITS ? $urandom() : extreme_integer(number, operand);
        case (distribution)
            NEAR_CENTRE: return finite_code(number, operand, centre - 1, centre + 1);
            FEW_BINADES: return finite_code(number, operand, centre - 4, centre + 4);
            EVERY_BINADE: return finite_code(number, operand, 0, largest);
            // A code is zero with probability 1/20. The exponent of a zero term must not raise the largest exponent,
            // which is visible only if all other terms are much smaller.
            SMALLEST: return one_in(20) ? 0 : finite_code(number, operand, 0, 2);
            LARGEST: return one_in(20) ? 0 : finite_code(number, operand, largest - 1, largest);
            BOTH_ENDS: return one_in(20) ? 0 : one_in(7) ? finite_code(number, operand, largest - 1, largest)
                                                         : finite_code(number, operand, 0, 2);
            CANCELLING: return finite_code(number, operand, centre - 3, centre + 3);
            MANY_ZEROS: return one_in(3) ? finite_code(number, operand, 0, largest) : 0;
            SOME_SPECIAL: return one_in(10) ? special_code(number, operand)
                                            : finite_code(number, operand, centre - 3, centre + 3);
            default: return $urandom();
        endcase
    endfunction

    function automatic bit [31:0] replaced(bit [31:0] word, int number, int operand, int place, bit [31:0] code);
        int low = place + FORMATS[number][operand][LOW], width = FORMATS[number][operand][CODE_BITS];
        bit [31:0] kept = 32'hFFFFFFFF >> (32 - width) << low;
        return word & ~kept | code << low & kept;
    endfunction

    // Returns a word of elements, with noise in the unused bits. With distribution CANCELLING, neighbouring elements of
    // A differ only in their signs, and all elements of B are equal. `previous` is the preceding word, unless
    // `first` is set.
    function automatic bit [31:0] drawn_word(int number, int operand, distribution_t distribution, int centre,
                                             bit [31:0] previous, bit first);  /*verilator no_inline_task*/
        int element = FORMATS[number][operand][ELEMENT], sign = FORMATS[number][operand][CODE_BITS] - 1;
        bit cancels = distribution == CANCELLING && FACTS[number][INTEGER] == 0 && operand != OF_C;
        bit [31:0] word = $urandom(), code = 0;
        if (distribution == ANY_BITS) return word;
        if (cancels && !first && operand == OF_B) return previous;
        if (cancels && !first && element == 32) return previous ^ 32'h1 << (FORMATS[number][operand][LOW] + sign);
        for (int place = 0; place < 32; place += element) begin
            if (!cancels || place == 0 || operand == OF_A && place / element % 2 == 0)
                code = drawn_code(number, operand, distribution, centre);
            else if (operand == OF_A) code ^= 32'h1 << sign;
            word = replaced(word, number, operand, place, code);
        end
        return word;
    endfunction

    // Replaces one element of a word by a zero, subnormal, special or huge number. In a word with many such elements,
    // the effect of a single element would be hidden.
    function automatic bit [31:0] planted(bit [31:0] word, int number, int operand);  /*verilator no_inline_task*/
        int element = FORMATS[number][operand][ELEMENT];
        return replaced(word, number, operand, element * int'($urandom_range(32 / element - 1)),
                        one_in(3) ? drawn_code(number, operand, LARGEST, 0) : special_code(number, operand));
    endfunction

    // Returns accumulators near given sums of products. If `residues` is set, an accumulator cancels the sum except for
    // the last bits. Otherwise, the exponents of accumulator and sum differ by at most 30, so that alignment shifts
    // occur.
    function automatic bit [31:0] near_sums(bit [31:0] sums, int number, bit residues);  /*verilator no_inline_task*/
        int element = FORMATS[number][OF_C][ELEMENT], fraction_bits = FORMATS[number][OF_C][FRACTION_BITS];
        bit [31:0] word = sums;
        for (int place = 0; place < 32; place += element) begin
            bit [31:0] code = sums >> place, sign = 32'h1 << (element - 1);
            int exponent = int'((code & (sign - 1)) >> fraction_bits), apart = int'($urandom_range(60)) - 30;
            if (residues) code = (code ^ sign) + $urandom_range(2) - 1;
            else code = finite_code(number, OF_C, exponent + apart, exponent + apart);
            word = replaced(word, number, OF_C, place, code);
        end
        return word;
    endfunction

    // Returns eight random metadata nibbles. If `defined` is set, the instruction defines all of them.
    function automatic bit [31:0] drawn_nibbles(int number, bit defined);
        bit [31:0] nibbles = $urandom();
        for (int chunk = 0; chunk < 8 && defined && FACTS[number][SPARSE] != 0; chunk++)
            while (!(16'(FACTS[number][DEFINED]) >> nibbles[4*chunk+:4] & 1)) nibbles[4*chunk+:4] = 4'($urandom());
        return nibbles;
    endfunction
endpackage
