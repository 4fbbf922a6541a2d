// Types of the tables in tables.h.
#ifndef SPTC_RECORDS_H
#define SPTC_RECORDS_H

#include <cstdint>

namespace sptc {

// What the top of a format's codes means: an exponent of Inf and NaN, NaN alone, or nothing.
enum class Specials { IEEE, NAN, NONE };
enum class Family { MMA, WGMMA, TCGEN05 };
enum class Sparsity { DENSE, SPARSE, ORDERED };
// Which equation forms a result; see isa/numerics.py.
enum class Method { FUSED, GROUPED, EMULATED, INTEGER };
enum class Rounding { RZ_F32, RZ_E8M13, RNE_F16, EXACT };

struct Format {
    const char *name;
    bool is_signed;
    int exponent_bits, fraction_bits, bias;
    Specials specials;
    bool subnormals;
    int ignored_low_bits, bits;

    constexpr bool is_integer() const { return exponent_bits == 0; }
    constexpr int minimum_exponent() const { return int(subnormals) - bias; }
};

struct Architecture {
    const char *name;
    int mux;  // index into Rule::missing
};

// Which nibbles are defined, as a mask, and which slots of a chunk a multiplexer leaves without a unit of B, as two bits.
struct Rule {
    const char *name;
    uint16_t legal;
    uint8_t missing[2][16];
    const char *meaning;
};

struct Numerics {
    Method method;
    int step, alignment_bits, zero_exponent;
    Rounding rounding;
};

// A permutation of shared memory, and where the fields stand that differ between generations of descriptors.
struct Swizzle {
    const char *name;
    int row_bytes, atom_bytes, pattern_rows;
};

struct Generation {
    int swizzle_bit;
    int swizzles[8];  // numbers in SWIZZLES by code, -1 if there is none
    int fixed_bit, fixed_bits, fixed_value;
};

// Thread and element in it (or bit, or byte) of row and column: sums over the bits of both.
struct Places {
    uint16_t thread_of_row[8], thread_of_column[8], element_of_row[8], element_of_column[8];
};

// Instructions that differ in M and N alone.
struct Form {
    Family family;
    Sparsity sparsity;
    int rows, columns;  // numbers of masks in MULTIPLES: bit i stands for 8 (i + 1)
    int k;
    int a, b, c, d;  // numbers in FORMATS
    const char *kind;
    bool satfinite;
    int scale_size;
    bool says_scale_size;  // whether it must be written
    int scale_format, span;  // span: logical k that share a scale
    int container_bits, low_bit_a, low_bit_b;
    int stored_k, chunks, stored_in_chunk;
    int rule;  // number in RULES
    int selectors, lanes_a_selector, lanes_a_thread_id_a, lanes_a_thread_id_b, threads;
    int places[6];    // numbers in PLACES of A, B, D, metadata, scales of A and of B
    int numerics[6];  // numbers in NUMERICS, one for each architecture
};

}  // namespace sptc

#endif
