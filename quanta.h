#pragma once

/// All of Quanta's public API.

#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/conv.h"
#include "quanta/ops/linear.h"
#include "quanta/ops/norm.h"
#include "quanta/ops/pooling.h"
#include "quanta/ops/quantize.h"
#include "quanta/ops/support.h"
#include "quanta/runtime/allocator.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/pt_file.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"
#include "quanta/runtime/tensor.h"
#include "quanta/runtime/verbose.h"
