// Verilator model of a top module, its ports by name, and its clock.
#ifndef SPTC_MODEL_H
#define SPTC_MODEL_H

#include "configuration.h"

// Model and ports of a top module; every driver's handle begins with this structure.
struct Driven {
    Model model;
    Ports ports{model};
};

// Clock a rising edge. The model does nothing at a falling edge and is not evaluated there; instead, its record of the
// last clock value is cleared. The name of this record is specific to the Verilator version that this package requires.
// This function is a template, since a model without registers has no clock.
template <typename Clocked>
void rise(Clocked &model) {
    model.rootp->__Vtrigprevexpr___TOP__clk__0 = 0;
    model.clk = 1;
    model.eval();
}

// Run one cycle in reset.
template <typename Clocked>
void reset(Clocked &model) {
    model.rst = 1;
    model.clk = 0;
    model.eval();
    rise(model);
    model.rst = 0;
}

#endif
