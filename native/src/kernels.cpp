// This file is compiled once per instruction set; the macro SPTC_KERNELS is the name of the kernels.
#include "kernels.h"

#include "lanes.h"
#include "raw.h"
#include "tables.h"

namespace sptc {
namespace {

// Number of products that are summed in a 32-bit integer: the sum of sixteen products of 27 bits is below 2^31.
constexpr int SLOTS_IN_32_BITS = 16;
// LEAST_WEIGHT and LARGEST_WEIGHT limit the exponent of the last bit that alignment keeps; LARGEST_PRODUCT limits the
// exponent of a product. Within these limits, an f32 represents the weight of the last bit and its reciprocal exactly.
// A product of two elements is then either exact in f32, or below this weight and therefore truncated to zero.
constexpr int LEAST_WEIGHT = -125, LARGEST_WEIGHT = 126, LARGEST_PRODUCT = 125;

// Returns exponents of accumulators. A step finds its largest exponent among these and the exponents of its products.
Ints exponent_of(Ints code, const Window &window) {
    const Ints magnitude = code & INT32_MAX;
    const Ints exponent = larger((magnitude >> 23) - 127, Ints{} + window.least_c_exponent);
    return magnitude != 0 ? exponent : Ints{} + EXPONENT_OF_ZERO;
}

// Accumulators of several columns, one column per vector lane, decoded for alignment.
struct Accumulator {
    Ints significand, exponent, effective;  // `effective`: exponent that is compared with product exponents
};

Accumulator accumulator(Ints code, const Window &window) {
    const Ints field = code >> 23 & 255, sign = code >> 31, fraction = code & 0x7FFFFF, subnormal = field == 0;
    const Ints magnitude = (fraction | (subnormal ? Ints{} : Ints{} + 0x800000)) & ~(field == 255);
    const Ints effective = larger(exponent_of(code, window), Ints{} + window.numerics.zero_exponent);
    return {(magnitude ^ sign) - sign, field - 127 - subnormal, effective};
}

// Replaces codes of Inf and NaN by 0.
Ints finite(Ints code) { return (code & INT32_MAX) < INFINITY_F32 ? code : Ints{}; }

Ints with_special_accumulator(Ints result, Ints code) {
    const Ints magnitude = code & INT32_MAX;
    return magnitude < INFINITY_F32 ? result : (magnitude > INFINITY_F32 ? Ints{} + CANONICAL_NAN : code);
}

// Collects Inf and NaN among the terms of an output; `result` returns Inf or NaN, or else the finite code.
struct SpecialTerms {
    bool nan = false, positive = false, negative = false;

    void add(int32_t one, int32_t other, bool is_negative) {
        const bool has_special = is_special(one) || is_special(other);
        if (!has_special) return;
        const bool has_zero = one == EXPONENT_OF_ZERO || other == EXPONENT_OF_ZERO;
        if (one == EXPONENT_OF_NAN || other == EXPONENT_OF_NAN || has_zero)
            nan = true;
        else
            (is_negative ? negative : positive) = true;
    }

    int32_t result(int32_t finite) const {
        if (nan || (positive && negative)) return CANONICAL_NAN;
        if (positive || negative) return INFINITY_F32 | (negative ? INT32_MIN : 0);
        return finite;
    }
};

bool is_negative(int32_t element, int32_t exponent) { return element < 0 || exponent == EXPONENT_OF_NEGATIVE_INFINITY; }

// Operands of one step (rounded sum) for one or more vectors of columns. The pointers to B point to the first column.
struct Step {
    const int32_t *elements, *offsets, *b_elements;
    const int16_t *exponents, *b_exponents;
    int slots;
};

Step step_of(const RowOfA &a, const BlockOfB &b, int first, int slots, int lane) {
    return {a.elements + first, a.offsets + first, b.elements + lane, a.exponents + first, b.exponents + lane, slots};
}

// Returns a copy of `step` whose pointers to B point to vector `v` of the columns. A vector has LANES columns.
Step of_vector(Step step, int v) {
    step.b_elements += v * LANES;
    step.b_exponents += v * LANES;
    return step;
}

// Replaces results by Inf or NaN where operands, block scales or accumulators `c` are Inf or NaN.
Ints with_specials(Ints result, const Step &step, Ints c, const bool *nan_scales) {
    int32_t results[LANES], codes[LANES];
    store(results, result);
    store(codes, c);
    for (int lane = 0; lane < LANES; ++lane) {
        SpecialTerms terms;
        terms.nan = nan_scales[lane];
        const int32_t magnitude = codes[lane] & INT32_MAX;
        if (magnitude > INFINITY_F32) terms.nan = true;
        if (magnitude == INFINITY_F32) (codes[lane] < 0 ? terms.negative : terms.positive) = true;
        for (int slot = 0; slot < step.slots; ++slot) {
            const int32_t place = step.offsets[slot] + lane, exponent = step.b_exponents[place];
            terms.add(step.exponents[slot], exponent,
                      is_negative(step.elements[slot], step.exponents[slot]) !=
                          is_negative(step.b_elements[place], exponent));
        }
        results[lane] = terms.result(results[lane]);
    }
    return load(results);
}

// Loads f32 into the lanes of one half of a vector.
Doubles load_half(const int32_t *codes, int side) {
    return __builtin_convertvector(loaded<HalfFloats>(codes + side * LANES / 2), Doubles);
}

// Computes the same rounded sums as `fused_step`, but for one vector of columns and for exponents of any size.
// `largest` contains the largest exponent of the terms of each sum.
__attribute__((noinline)) Ints fused_in_doubles(const Window &window, const Step &step, Ints c, Ints scale,
                                                Ints largest) {
    const Ints up = window.numerics.alignment_bits - larger(largest, Ints{} + window.numerics.zero_exponent);
    int32_t codes[LANES];
    store(codes, finite(c));
    Doubles sum[2], factor[2];
    for (int side = 0; side < 2; ++side) {
        sum[side] = truncated(load_half(codes, side) * power_of_two(half(up, side)));
        factor[side] = power_of_two(half(up + scale, side));
    }
    for (int slot = 0; slot < step.slots; ++slot) {
        const double a = bits_as<float>(step.elements[slot]);
        for (int side = 0; side < 2; ++side)
            sum[side] += truncated(load_half(step.b_elements + step.offsets[slot], side) * a * factor[side]);
    }
    HalfInts results[2];
    for (int side = 0; side < 2; ++side)
        results[side] = rounded(sum[side] * power_of_two(-half(up, side)), window.numerics.rounding);
    return with_special_accumulator(joined(results[0], results[1]), c);
}

// Multiplies sums by powers of two and rounds the products.
__attribute__((noinline)) Ints rounded_in_doubles(Ints sum, Ints exponent, Rounding rounding) {
    HalfInts results[2];
    for (int side = 0; side < 2; ++side)
        results[side] =
            rounded(__builtin_convertvector(half(sum, side), Doubles) * power_of_two(half(exponent, side)), rounding);
    return joined(results[0], results[1]);
}

// Sums products `first` to `last` - 1 of `step`. Each product is multiplied by `factor` and truncated to an integer.
template <int V>
void sum_products(const Step &step, int first, int last, const Floats *factor, Ints *sums) {
    Ints sum[V] = {};  // compilers keep the local array `sum`, unlike `sums`, in registers
    for (int slot = first; slot < last; ++slot) {
        const Floats a = bits_as<Floats>(Ints{} + step.elements[slot]);
        const int32_t *b = step.b_elements + step.offsets[slot];
        for (int v = 0; v < V; ++v)
            sum[v] += __builtin_convertvector(bits_as<Floats>(load(b + v * LANES)) * a * factor[v], Ints);
    }
    for (int v = 0; v < V; ++v) sums[v] = sum[v];
}

// Computes one rounded sum for each column of V SIMD vectors: aligns products and accumulators to the largest exponent,
// truncates, sums and rounds. `scale` is the exponent of the block scale of A plus that of B.
//
// Terms are f32. A multiplication by a power of two gives the last bit that alignment keeps the weight 1. A conversion
// to an integer truncates lower bits. If exponents exceed the limits of f32 or a sum exceeds 32 bits, doubles are used.
template <int V>
void fused_step(const Window &window, const Step &step, Ints *c, const Ints *scale) {
    const int f = window.numerics.alignment_bits, floor = window.numerics.zero_exponent;
    const int least = larger(floor, f + LEAST_WEIGHT);
    // If the largest exponent of a sum is at most `replaced`, all terms are zero, or alignment uses `floor` instead.
    const int replaced = floor < least ? EXPONENT_OF_ZERO / 2 : least;
    Shorts products[V];
    Ints largest[V], e_max[V], total[V], beyond{}, overflow{};
    Floats factor[V];
    for (int v = 0; v < V; ++v) products[v] = Shorts{} + int16_t(2 * EXPONENT_OF_NAN);
    for (int slot = 0; slot < step.slots; ++slot) {
        const int16_t a = step.exponents[slot], *b = step.b_exponents + step.offsets[slot];
        for (int v = 0; v < V; ++v) products[v] = larger(products[v], load(b + v * LANES) + a);
    }
    for (int v = 0; v < V; ++v) {
        const Ints largest_product = widened(products[v]);
        largest[v] = larger(largest_product + scale[v], exponent_of(c[v], window));
        beyond |= ((largest[v] > replaced) & (largest[v] < least)) | (largest[v] > f + LARGEST_WEIGHT) |
                  (largest_product > LARGEST_PRODUCT);
    }
    const auto in_doubles = [&] {
        for (int v = 0; v < V; ++v) c[v] = fused_in_doubles(window, of_vector(step, v), c[v], scale[v], largest[v]);
    };
    if (any(beyond)) return in_doubles();
    for (int v = 0; v < V; ++v) {
        e_max[v] = larger(largest[v], Ints{} + least);
        factor[v] = power_of_two(f - e_max[v]);
        total[v] = __builtin_convertvector(bits_as<Floats>(finite(c[v])) * factor[v], Ints);
        if (window.scaled)
            factor[v] = power_of_two(larger(smaller(f - e_max[v] + scale[v], Ints{} + 127), Ints{} - 126));
    }
    for (int first = 0; first < step.slots; first += SLOTS_IN_32_BITS) {
        Ints sum[V];
        const int last = first + SLOTS_IN_32_BITS < step.slots ? first + SLOTS_IN_32_BITS : step.slots;
        sum_products<V>(step, first, last, factor, sum);
        for (int v = 0; v < V; ++v) {
            const Ints next = bits_as<Ints>(bits_as<Words>(total[v]) + bits_as<Words>(sum[v]));
            // The magnitude of -2^31 does not fit into a signed 32-bit integer.
            overflow |= ((total[v] ^ next) & (sum[v] ^ next)) | (next == INT32_MIN);
            total[v] = next;
        }
    }
    if (any(overflow < 0)) return in_doubles();
    for (int v = 0; v < V; ++v) {
        const Ints result = window.numerics.rounding == Rounding::RZ_F32
                                ? bits_as<Ints>(toward_zero(total[v]) * power_of_two(e_max[v] - f))
                                : rounded_in_doubles(total[v], e_max[v] - f, window.numerics.rounding);
        c[v] = with_special_accumulator(result, c[v]);
    }
}

template <int V>
void fused_lanes(const Window &window, const RowOfA &a, const BlockOfB &b, int32_t *d, int lane) {
    Ints accumulators[V];
    for (int v = 0; v < V; ++v) accumulators[v] = load(d + lane + v * LANES);
    for (int number = 0; number < window.steps; ++number) {
        const Step step = step_of(a, b, number * window.slots, window.slots, lane);
        const int32_t *b_scales = window.scaled ? b.scale_exponents + number * b.stride + lane : nullptr;
        Ints before[V], scale[V] = {};
        for (int v = 0; v < V; ++v) {
            before[v] = accumulators[v];
            if (window.scaled) scale[v] = load(b_scales + v * LANES) + a.scale_exponents[number];
        }
        fused_step<V>(window, step, accumulators, scale);
        if (!a.special && !b.special) continue;
        for (int v = 0; v < V; ++v) {
            bool nan_scales[LANES] = {};
            for (int i = 0; window.scaled && i < LANES; ++i)
                nan_scales[i] = is_special(a.scale_exponents[number]) || is_special(b_scales[v * LANES + i]);
            accumulators[v] = with_specials(accumulators[v], of_vector(step, v), before[v], nan_scales);
        }
    }
    for (int v = 0; v < V; ++v) store(d + lane + v * LANES, accumulators[v]);
}

void fused(const Window &window, const RowOfA &a, const BlockOfB &b, int32_t *d) {
    int lane = 0;
    for (; lane + 4 * LANES <= b.stride; lane += 4 * LANES) fused_lanes<4>(window, a, b, d, lane);
    for (; lane + 2 * LANES <= b.stride; lane += 2 * LANES) fused_lanes<2>(window, a, b, d, lane);
    for (; lane < b.stride; lane += LANES) fused_lanes<1>(window, a, b, d, lane);
}

// Computes each pair of steps from a zero accumulator, and adds the result of the pair to C by an IEEE 754 addition.
void emulated(const Window &window, const RowOfA &a, const BlockOfB &b, int32_t *d) {
    const bool no_scales[LANES] = {};
    for (int lane = 0; lane < b.stride; lane += LANES) {
        Ints accumulators = load(d + lane);
        for (int number = 0; number < window.steps; number += 2) {
            Ints total{};
            for (int part = number; part < number + 2; ++part) {
                const Step step = step_of(a, b, part * window.slots, window.slots, lane);
                const Ints before = total;
                const Ints no_scale{};
                fused_step<1>(window, step, &total, &no_scale);
                if (a.special || b.special) total = with_specials(total, step, before, no_scales);
            }
            const Floats sum = bits_as<Floats>(accumulators) + bits_as<Floats>(total);
            const Ints is_nan = sum != sum;
            Ints code = bits_as<Ints>(sum);
            if (window.numerics.rounding == Rounding::RNE_F16) {
                // An f32 has more than twice as many significand bits as an f16. Rounding the f32 sum of two f16
                // numbers to f16 therefore gives the correctly rounded f16 sum.
                const auto rounded_half = [&](int side) {
                    const HalfFloats floats = bits_as<HalfFloats>(half(code, side));
                    return rounded(__builtin_convertvector(floats, Doubles), Rounding::RNE_F16);
                };
                code = joined(rounded_half(0), rounded_half(1));
            }
            accumulators = is_nan ? Ints{} + CANONICAL_NAN : code;
        }
        store(d + lane, accumulators);
    }
}

// Sums each group of products exactly and multiplies the sum by its block scales; then aligns, truncates and sums the
// groups in 64 bits. If SIZE is smaller than a group and the exponent of the largest product exceeds that of the
// accumulator, parts of SIZE products are truncated separately, and the accumulator does not count in the largest
// exponent.
template <int SIZE>
Ints grouped_step(const Window &window, const RowOfA &a, const BlockOfB &b, int first_slot, int first_group, int lane,
                  Ints c) {
    constexpr int GROUPS = 4, PARTS = BLOCK_GROUP / SIZE;
    const Accumulator accumulated = accumulator(c, window);
    const Ints none = Ints{} + INT32_MIN / 2;
    Ints terms[GROUPS], parts[GROUPS][PARTS], exponents[GROUPS], late{}, largest_product = none;
    Ints e_max = Ints{} + window.numerics.zero_exponent;
    const int groups = window.slots / BLOCK_GROUP;
    for (int group = 0; group < groups; ++group) {
        const Step step = step_of(a, b, first_slot + group * BLOCK_GROUP, BLOCK_GROUP, lane);
        Ints sum{}, any{}, largest = none;
        for (int part = 0; part < PARTS; ++part) {
            Ints part_sum{};
            for (int slot = part * SIZE; slot < (part + 1) * SIZE; ++slot) {
                const Ints exponent = widened(load(step.b_exponents + step.offsets[slot]) + step.exponents[slot]);
                const Ints product = load(step.b_elements + step.offsets[slot]) * step.elements[slot];
                // A zero product has a very low exponent, so its shift amount is set to 0.
                part_sum += product << larger(exponent, Ints{});
                any |= product;
                if (PARTS > 1) largest = larger(largest, exponent);
            }
            parts[group][part] = part_sum;
            sum += part_sum;
        }
        const int32_t *scales = b.scale_significands + (first_group + group) * b.stride + lane;
        const Ints significand = load(scales) * a.scale_significands[first_group + group];
        const Ints scale =
            load(b.scale_exponents + (first_group + group) * b.stride + lane) + a.scale_exponents[first_group + group];
        const Ints counts = (any != 0) & (significand != 0);
        terms[group] = sum * significand;
        exponents[group] = counts ? scale : Ints{} + window.numerics.zero_exponent;
        e_max = larger(e_max, exponents[group]);
        if (PARTS > 1) {
            for (int part = 0; part < PARTS; ++part) parts[group][part] *= significand;
            largest_product = counts ? larger(largest_product, largest + scale) : largest_product;
        }
    }
    if (PARTS > 1) late = largest_product > accumulated.effective;
    e_max = late ? e_max : larger(e_max, accumulated.effective);
    HalfInts results[2];
    for (int side = 0; side < 2; ++side) {
        const Longs largest = __builtin_convertvector(half(e_max, side), Longs);
        const Longs c_exponent = __builtin_convertvector(half(accumulated.exponent, side), Longs);
        const Longs c_significand = __builtin_convertvector(half(accumulated.significand, side), Longs);
        // If the search for the largest exponent leaves out the accumulator, the exponent of the accumulator can be
        // greater than the exponent that the search finds, by up to 3.
        const Longs c_shift = largest - c_exponent, c_up = PARTS > 1 && c_shift < 0 ? -c_shift : Longs{};
        Longs total = truncated((c_significand << (window.numerics.alignment_bits - 23)) << c_up, c_shift + c_up);
        for (int group = 0; group < groups; ++group) {
            const Longs shift = largest - __builtin_convertvector(half(exponents[group], side), Longs);
            Longs whole = truncated(__builtin_convertvector(half(terms[group], side), Longs) << window.group_up, shift);
            if (PARTS > 1) {
                Longs sum{};
                for (int part = 0; part < PARTS; ++part)
                    sum += truncated(__builtin_convertvector(half(parts[group][part], side), Longs) << window.group_up,
                                     shift);
                whole = __builtin_convertvector(half(late, side), Longs) ? sum : whole;
            }
            total += whole;
        }
        const HalfInts unit = half(e_max, side) - window.numerics.alignment_bits;
        results[side] = rounded(as_double(total) * power_of_two(unit), window.numerics.rounding);
    }
    return with_special_accumulator(joined(results[0], results[1]), c);
}

template <int SIZE>
void grouped_by(const Window &window, const RowOfA &a, const BlockOfB &b, int32_t *d) {
    const int groups = window.slots / BLOCK_GROUP;
    for (int lane = 0; lane < b.stride; lane += LANES) {
        Ints accumulators = load(d + lane);
        for (int number = 0; number < window.steps; ++number) {
            const Ints before = accumulators;
            accumulators = grouped_step<SIZE>(window, a, b, number * window.slots, number * groups, lane, before);
            if (a.special || b.special) {
                bool nan_scales[LANES] = {};
                for (int group = number * groups; group < (number + 1) * groups; ++group)
                    for (int i = 0; i < LANES; ++i)
                        nan_scales[i] |= is_special(a.scale_exponents[group]) ||
                                         is_special(b.scale_exponents[group * b.stride + lane + i]);
                accumulators = with_specials(accumulators, step_of(a, b, 0, 0, lane), before, nan_scales);
            }
        }
        store(d + lane, accumulators);
    }
}

void grouped(const Window &window, const RowOfA &a, const BlockOfB &b, int32_t *d) {
    (window.numerics.group == BLOCK_GROUP ? grouped_by<BLOCK_GROUP> : grouped_by<PART_OF_GROUP>)(window, a, b, d);
}

template <int V>
void integer_lanes(const Window &window, const RowOfA &a, const BlockOfB &b, int32_t *d, int lane) {
    Words accumulators[V];
    for (int v = 0; v < V; ++v) accumulators[v] = bits_as<Words>(load(d + lane + v * LANES));
    for (int number = 0; number < window.steps; ++number) {
        const Step step = step_of(a, b, number * window.slots, window.slots, lane);
        Ints sum[V] = {};
        for (int slot = 0; slot < step.slots; ++slot)
            for (int v = 0; v < V; ++v)
                sum[v] += load(step.b_elements + step.offsets[slot] + v * LANES) * step.elements[slot];
        for (int v = 0; v < V; ++v) {
            const Words before = accumulators[v], after = before + bits_as<Words>(sum[v]);
            const Words left = (before ^ after) & (bits_as<Words>(sum[v]) ^ after);
            const Ints nearest = bits_as<Ints>(before) < 0 ? Ints{} + INT32_MIN : Ints{} + INT32_MAX;
            const Ints clamped = bits_as<Ints>(left) < 0 ? nearest : bits_as<Ints>(after);
            accumulators[v] = window.saturates ? bits_as<Words>(clamped) : after;
        }
    }
    for (int v = 0; v < V; ++v) store(d + lane + v * LANES, bits_as<Ints>(accumulators[v]));
}

void integer(const Window &window, const RowOfA &a, const BlockOfB &b, int32_t *d) {
    int lane = 0;
    for (; lane + 4 * LANES <= b.stride; lane += 4 * LANES) integer_lanes<4>(window, a, b, d, lane);
    for (; lane < b.stride; lane += LANES) integer_lanes<1>(window, a, b, d, lane);
}

// Decodes elements without branches in the loop, so that compilers vectorise it.
template <typename Container>
bool decode(const Encoding &encoding, const Container *containers, int64_t count, int32_t *elements,
            int16_t *exponents) {
    const int fraction_bits = encoding.fraction_bits, sign_bit = fraction_bits + encoding.exponent_bits;
    const int bias = encoding.bias, low_bit = encoding.low_bit;
    const int32_t infinity = ((1 << encoding.exponent_bits) - 1) << fraction_bits;
    // The exponent and fraction bits of a code, placed in an f32, give a number that is 2^(127 - bias) times too small.
    const float factor = bits_as<float>((127 - bias + 127) << 23);
    int32_t specials = 0;
    for (int64_t i = 0; i < count; ++i) {
        const int32_t code = int32_t(uint32_t(containers[i]) >> low_bit);
        const int32_t magnitude = code & ((1 << sign_bit) - 1), negative = -(code >> sign_bit & 1);
        const int32_t special = -int32_t(magnitude >= infinity), field = magnitude >> fraction_bits;
        const int32_t finite = magnitude ? larger(field, 1) - bias : EXPONENT_OF_ZERO;
        const int32_t unbounded = magnitude == infinity ? EXPONENT_OF_INFINITY + negative : EXPONENT_OF_NAN;
        const float value = bits_as<float>(magnitude << (23 - fraction_bits)) * factor;
        elements[i] = (bits_as<int32_t>(value) | (negative & INT32_MIN)) & ~special;
        exponents[i] = int16_t(special ? unbounded : finite);
        specials |= special;
    }
    return specials != 0;
}

}  // namespace

extern const Kernels SPTC_KERNELS = {SPTC_KERNELS_NAME, LANES,           fused, grouped, emulated, integer,
                                     decode<uint16_t>,  decode<uint32_t>};

}  // namespace sptc
