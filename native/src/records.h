// C++ types of the records in tables.h, a generated header with the tables of formats and instructions.
#ifndef SPTC_RECORDS_H
#define SPTC_RECORDS_H

#include <cstdint>

namespace sptc {

// Meaning of the largest exponent or code of a format: Inf and NaN, NaN only, or ordinary numbers.
enum class Specials { IEEE_TOP, NAN_TOP, NONE_TOP };  // the names end in _TOP because NAN is a macro of math.h
enum class Family { MMA, WGMMA, TCGEN05 };
enum class Sparsity { DENSE, SPARSE, ORDERED };
// Method of summation: one truncated sum per step; groups with block scales; fp8 emulated by steps with an IEEE
// addition of C; exact integers.
enum class Method { FUSED, GROUPED, EMULATED, INTEGER };
enum class Rounding { RZ_F32, RZ_E8M13, RNE_F16, EXACT, RNE_F32 };

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
    int numerics;       // index into Form::numerics; several targets of the assembler can share one index
    int mux;            // type of the operand multiplexers: the first index of Rule::missing
    const char *lacks;  // instructions that the target lacks: words like tcgen05.sp.mxf4, each between two spaces
    int is_family;      // whether the target is a family target (suffix f); it has no .scale_vec of tcgen05
};

// A metadata rule. `legal` is the mask of the defined nibbles. `missing` has, for each multiplexer type and nibble, a
// mask of the two indices in the nibble; a set bit means that the multiplexer selects no element of B for the index.
struct Rule {
    const char *name;
    uint16_t legal;
    uint8_t missing[2][16];
    const char *meaning;
};

struct Numerics {
    Method method;
    int step, alignment_bits, zero_exponent;
    int group;  // for method GROUPED, number of products that are summed exactly before truncation
    Rounding rounding;
};

// Swizzle mode of shared memory, which permutes units of 16 bytes.
struct Swizzle {
    const char *name;
    int row_bytes, atom_bytes, pattern_rows;
};

// Fields of the shared-memory matrix descriptor whose bits or codes differ between wgmma and tcgen05.
struct Generation {
    int swizzle_bit;
    int swizzles[8];  // for each code of the swizzle field, row of table SWIZZLES; -1 for an undefined code
    int fixed_bit, fixed_bits, fixed_value;
};

// Placement of a matrix in registers: thread, and element (or bit, or byte) within the thread, as sums over the bits of
// row and column.
struct Places {
    uint16_t thread_of_row[8], thread_of_column[8], element_of_row[8], element_of_column[8];
};

// Returns the sum of the strides of the bits that are set in a coordinate.
inline int sum_of_bits(const uint16_t *strides, int number) {
    int sum = 0;
    for (int bit = 0; number >> bit; ++bit)
        if (number >> bit & 1) sum += strides[bit];
    return sum;
}

// Form: a set of instructions that differ only in M and N.
struct Form {
    Family family;
    Sparsity sparsity;
    int rows, columns;  // rows of table MULTIPLES with the sets of M and N; bit i of a set stands for 8 (i + 1)
    int k;
    int a, b, c, d;  // rows of table FORMATS with the formats of A, B, C and D
    const char *kind;
    bool satfinite;
    int scale_size;
    bool says_scale_size;    // whether PTX text must state the number of block scales
    int scale_format, span;  // span: number of elements along K that share a scale
    int container_bits, low_bit_a, low_bit_b;
    int unit_a, unit_b;  // number of elements in 16 bytes of shared memory
    int stored_k, chunks, stored_in_chunk;
    int rule;  // row of table RULES with the metadata rule
    int selectors, lanes_a_selector, lanes_a_thread_id_a, lanes_a_thread_id_b, threads;
    int places[6];    // rows of table PLACES for A, B, D, metadata, scales of A and scales of B; -1 if absent
    int numerics[6];  // for each Architecture::numerics, row of table NUMERICS; -1 if the architecture lacks the form
};

// Bit field of a descriptor; width 0 if the descriptor has no such field.
struct Field {
    int low, width;

    constexpr uint32_t of(uint64_t value) const { return uint32_t(value >> low & ((uint64_t(1) << width) - 1)); }
};

// Fields of the instruction descriptor for a group of kinds of tcgen05.mma.
struct DescriptorFields {
    uint64_t defined;  // mask of the bits that belong to a field
    Field sparsity_selector, sparse, saturate, d, a, b, negate_a, negate_b, transpose_a, transpose_b, n, m, max_shift,
        scale_id_a, scale_id_b, scale_type, k;
};

// Fields of the zero-column mask descriptor. `starts` and `skip_first` have one subfield for each part of the columns.
struct ColumnMaskFields {
    uint64_t defined;
    Field starts, skip_first, generated, skip_span, use_span, shift;
};

// A `.kind::` of tcgen05.mma. Arrays of formats contain indices in FORMATS, by code; -1 marks an undefined code.
struct Kind {
    const char *name;
    int fields;  // row of table DESCRIPTOR_FIELDS with the kind's instruction descriptor
    int m_unit;  // number of rows that one unit of the descriptor field M stands for
    int types[8], accumulators[4];
    int scale_formats[3][2];  // for 1, 2 and 4 block scales: index in FORMATS of the scale format, by code
    bool scaled, mixes, transposes, negates, saturates;
};

// Number of block scales (`size`) that a qualifier sets; an empty `word` stands for an opcode without the qualifier.
struct ScaleWord {
    int kind;
    const char *word;
    int size;
};

// Shapes that the instruction descriptor of a tcgen05.mma opcode may select.
struct OpcodeShapes {
    int kind;
    bool sparse;
    int cta_group;
    bool weight_stationary, shifts_a;
    int selectors;
    bool scales_input_d;
    int count, rows[3], layouts[3];  // number of values of M, these values, and the index in LAYOUTS for each value
    int columns;                     // row of table MULTIPLES that has the possible values of N
};

// Placement in tensor memory: lane, column and lowest bit, as sums over the bits of the row and the column of a matrix.
struct TensorPlaces {
    uint16_t lane_of_row[8], lane_of_column[8], column_of_row[8], column_of_column[8], bit_of_row[8], bit_of_column[8];
};

// Layout of D in the lanes of tensor memory. The columns of D are divided among `parts` successive groups of lanes.
// Each group of lanes has its own copy of A and of the metadata.
struct Layout {
    const char *name;
    int rows, parts;
    bool half_lanes;  // whether D uses 16 of every 32 lanes
    int largest_shift;
    int d, a[4], e[2];  // rows of TENSOR_PLACES: D; A of 4, 8, 16 and 32 bits; metadata for A up to 8 bits and above
};

}  // namespace sptc

#endif
