// Interface between the model of a top module and the models of its dot-product units in a separate library.
#ifndef SPTC_UNITS_H
#define SPTC_UNITS_H

#include "svdpi.h"

#include <cstdint>

// Functions of a library of dot-product units.
struct Library {
    void *(*create)();
    void (*destroy)(void *);
    void *(*add)(void *);
    void (*clock)(void *, void *, const uint32_t *, uint32_t *);
};

// Dot-product units of one model of a top module. `units` is null if the model itself contains the units.
struct UnitsOfModel {
    Library library;
    void *units;
    explicit UnitsOfModel(const Library &of) : library(of), units(of.create ? of.create() : nullptr) {}
    ~UnitsOfModel() {
        if (units) library.destroy(units);
    }
};

// Dot-product units of the model that is being created or evaluated in the current thread.
inline thread_local UnitsOfModel *evaluated;

extern "C" inline void *unit_create() { return evaluated->library.add(evaluated->units); }
extern "C" inline void unit_clock(void *unit, const svBitVecVal *step, svBitVecVal *result) {
    evaluated->library.clock(evaluated->units, unit, step, result);
}

#endif
