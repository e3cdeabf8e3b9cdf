// The tile functions for what every machine of this architecture has.
#define ISA base
#include "device/cpu/tiles.inc"
