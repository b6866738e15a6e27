#pragma once

// Private: as below, for kernels of ops. Include it before any header of Highway.

#include "quanta/runtime/detail/highway.h"
