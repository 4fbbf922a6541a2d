// Vector types of the generated header `function.h`. Each vector holds one 32-bit limb of a word for many steps, one
// step per lane.
#ifndef SPTC_VECTORS_H
#define SPTC_VECTORS_H

#include <cstddef>
#include <cstdint>

constexpr size_t lanes = 16;
typedef uint32_t Steps __attribute__((vector_size(4 * lanes)));
typedef int32_t Truth __attribute__((vector_size(4 * lanes)));  // result of a comparison in each lane: all ones or zero

inline Steps bit(Truth truth) { return (Steps)truth & 1u; }
inline Steps chosen(Steps one, Steps other, Steps where) { return (one & ~where) | (other & where); }
inline Steps all_of(uint32_t constant) { return Steps{} + constant; }

#endif
