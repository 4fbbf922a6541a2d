// Hash function for words of 32 bits.
#ifndef SPTC_HASH_H
#define SPTC_HASH_H

#include <cstdint>

inline uint32_t fold(uint32_t hash, uint32_t word) {
    hash = (hash ^ word) * 0x9e3779b1u;
    return hash ^ hash >> 15;
}

#endif
