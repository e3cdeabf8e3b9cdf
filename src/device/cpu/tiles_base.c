// The tile functions for the instructions that every machine of this architecture has.
#define ISA base
#include "device/cpu/tiles.inc"
