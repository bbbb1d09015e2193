// What kernels on panels share.

#include "transpose.inc.cpp"

#include "layer.inc.cpp"

#include "lane_sums.inc.cpp"

#include "guard.inc.cpp"
