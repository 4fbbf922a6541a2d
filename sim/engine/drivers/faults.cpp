// Driver of a design with injected faults: selects the active fault, or no fault.
#include "model.h"

extern "C" void select_fault(void *driven, int fault) { static_cast<Driven *>(driven)->model.active_fault = fault; }
