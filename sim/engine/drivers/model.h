// A model of a top, its ports by their names, and its clock.
#ifndef SPTC_MODEL_H
#define SPTC_MODEL_H

#include "configuration.h"

// What a driver's handle begins with.
struct Driven {
    Model model;
    Ports ports{model};
};

// Nothing happens at a falling edge: the model learns that the clock fell without being evaluated there. The name is that
// of the one Verilator version that this package requires. A template, since a model without registers has no clock.
template <typename Clocked>
void rise(Clocked &model) {
    model.rootp->__Vtrigprevexpr___TOP__clk__0 = 0;
    model.clk = 1;
    model.eval();
}

// One cycle in reset.
template <typename Clocked>
void reset(Clocked &model) {
    model.rst = 1;
    model.clk = 0;
    model.eval();
    rise(model);
    model.rst = 0;
}

#endif
