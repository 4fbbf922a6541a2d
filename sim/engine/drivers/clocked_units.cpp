// Library of dot-product units: each unit is a Verilator model, which the model of the top module clocks.
#include <cstring>
#include <deque>

#include "model.h"

extern "C" void *units_create() { return new std::deque<Model>; }
extern "C" void units_destroy(void *units) { delete static_cast<std::deque<Model> *>(units); }
extern "C" void *units_add(void *units) {
    Model &unit = static_cast<std::deque<Model> *>(units)->emplace_back();
    unit.enable = 1;
    unit.clk = 0;
    unit.eval();
    return &unit;
}
extern "C" void units_clock(void *, void *handle, const uint32_t *step, uint32_t *result) {
    Model &unit = *static_cast<Model *>(handle);
    std::memcpy(&unit.step, step, sizeof unit.step);
    rise(unit);
    std::memcpy(result, &unit.result, sizeof unit.result);
}
