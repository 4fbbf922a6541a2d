// Interface between the model of a top module and the models of its dot-product units in a separate library.
#ifndef SPTC_UNITS_H
#define SPTC_UNITS_H

#include "model.h"
#include "svdpi.h"

// Functions of a library of dot-product units.
struct Library {
    void *(*create)();
    void (*destroy)(void *);
    void *(*add)(void *);
    void (*clock)(void *, void *, const uint32_t *, uint32_t *);
};

// Model of a top module, with its dot-product units. `units` is null if the model itself contains the units.
struct Top : Driven {
    const Library library;
    void *const units;
    explicit Top(const Library &other) : library(other), units(other.create ? other.create() : nullptr) {}
    ~Top() {
        if (units) library.destroy(units);
    }
};

// Top module that is being evaluated in the current thread.
inline thread_local Top *evaluated;

extern "C" inline void *unit_create() { return evaluated->library.add(evaluated->units); }
extern "C" inline void unit_clock(void *unit, const svBitVecVal *step, svBitVecVal *result) {
    evaluated->library.clock(evaluated->units, unit, step, result);
}

#endif
