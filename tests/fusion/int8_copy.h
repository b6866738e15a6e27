#pragma once

#include "quanta/fusion/convert.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/prepare.h"

namespace quanta::test {

/// A network of nn/models fused, calibrated with one batch and converted.
template <typename Net>
Net int8_copy(Net net, const Tensor& x) {
  net.eval();
  fuse_modules(net, fusion_groups(net));
  const Net prepared = prepare(net, get_default_qconfig());
  prepared(x);
  return convert(prepared);
}

}  // namespace quanta::test
