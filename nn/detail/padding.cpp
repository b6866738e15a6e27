#include "quanta/nn/detail/padding.h"

#include "quanta/ops/pad.h"
#include "quanta/runtime/check.h"

namespace quanta::nn::detail {
namespace {

PadMode pad_mode(PaddingMode mode) {
  switch (mode) {
    case PaddingMode::Zeros:
      return PadMode::Constant;
    case PaddingMode::Reflect:
      return PadMode::Reflect;
    case PaddingMode::Replicate:
      return PadMode::Replicate;
    case PaddingMode::Circular:
      return PadMode::Circular;
  }
  throw InternalError("pad_mode: mode: unknown");
}

}  // namespace

std::string_view to_string(PaddingMode mode) {
  switch (mode) {
    case PaddingMode::Zeros:
      return "zeros";
    case PaddingMode::Reflect:
      return "reflect";
    case PaddingMode::Replicate:
      return "replicate";
    case PaddingMode::Circular:
      return "circular";
  }
  throw InternalError("to_string: mode: unknown");
}

Tensor pad_input(std::string_view op, const Tensor& x, const Dims& padding, PaddingMode mode) {
  const auto spatial = static_cast<std::int64_t>(padding.size());
  QUANTA_CHECK(x.dim() == spatial + 1 || x.dim() == spatial + 2,
               "{}: x: expected {} or {} dimensions, got {}", op, spatial + 1, spatial + 2,
               x.sizes());
  // Both sides of the last dimension come first.
  Dims both;
  for (std::size_t i = padding.size(); i-- > 0;) {
    both.push_back(padding[i]);
    both.push_back(padding[i]);
  }
  return pad(x, both, pad_mode(mode));
}

}  // namespace quanta::nn::detail
