// Driver of a design with faults: selects the active fault, or none.
#include "model.h"

extern "C" void select_fault(void *driven, int fault) { static_cast<Driven *>(driven)->model.active_fault = fault; }
