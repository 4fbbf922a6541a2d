// A design with faults: one of them is active, or none.
#include "model.h"

extern "C" void select_fault(void *driven, int fault) { static_cast<Driven *>(driven)->model.active_fault = fault; }
