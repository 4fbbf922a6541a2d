// Verilator model of a top module, with its ports by name, and functions that clock and reset it.
#ifndef SPTC_MODEL_H
#define SPTC_MODEL_H

#include "configuration.h"

// Model and ports of a top module. The handle of every driver points to this structure or begins with it.
struct Driven {
    Model model;
    Ports ports{model};
};

// Apply a rising clock edge. The model does nothing at a falling edge and is not evaluated there. Instead, the variable
// in which the model records the last clock value is cleared. The name of this variable is specific to the Verilator
// version that sptc requires. The function is a template because a model without registers has no clock.
template <typename Clocked>
void rise(Clocked &model) {
    model.rootp->__Vtrigprevexpr___TOP__clk__0 = 0;
    model.clk = 1;
    model.eval();
}

// Run one clock cycle with an active reset.
template <typename Clocked>
void reset(Clocked &model) {
    model.rst = 1;
    model.clk = 0;
    model.eval();
    rise(model);
    model.rst = 0;
}

#endif
