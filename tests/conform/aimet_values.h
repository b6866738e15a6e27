#pragma once

#include "arguments.h"
#include "quanta/nn/aimet/affine_quantizer.h"
#include "suite.h"

namespace quanta::conform {

/// Settings of an affine quantizer, as far as the case gives them.
inline aimet::AffineQuantizerOptions affine_options_of(const Case& test) {
  aimet::AffineQuantizerOptions options;
  const Arguments given(test.attrs);
  given("shape", options.shape);
  given("qmin", options.qmin);
  given("qmax", options.qmax);
  if (!options.qmin) given("bitwidth", options.bitwidth);
  given("symmetric", options.symmetric);
  given("block_size", options.block_size);
  given("zero_point_shift", options.zero_point_shift);
  return options;
}

/// The grid of a case: qmin and qmax, or bitwidth and signed.
inline aimet::Grid grid_of(const Case& test) {
  if (test.has_attr("qmin")) return {test.integer("qmin"), test.integer("qmax")};
  return aimet::Grid::from_bitwidth(test.integer("bitwidth"), test.flag("signed", false));
}

/// x as a leaf that asks for a gradient if the case has one to compare.
inline Tensor leaf_of(const Case& test, const char* name) {
  const Tensor x = test.tensor(name);
  if (test.flag("backward", false)) x.set_requires_grad();
  return x;
}

}  // namespace quanta::conform
