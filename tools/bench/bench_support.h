#pragma once

#include "median_seconds.h"
#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/module.h"
#include "quanta/runtime/tensor.h"

namespace quanta::bench {

/// Fuses an eval-mode network in place and returns a converted copy, calibrated with `example`.
template <typename Net>
Net quantized_copy(Net& net, const Tensor& example) {
  fuse_modules(net, fusion_groups(net));
  const Net prepared = prepare(net, get_default_qconfig());
  prepared(example);
  return convert(prepared);
}

}  // namespace quanta::bench
