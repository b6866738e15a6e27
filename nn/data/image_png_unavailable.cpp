#include "quanta/nn/data/detail/image_codecs.h"
#include "quanta/runtime/check.h"

namespace quanta::data::detail {

const bool kHasPng = false;

Tensor decode_png(std::span<const std::byte>, ImageMode, const std::string& where) {
  throw UnsupportedError(fmt::format(
      "{}: expected a format that this build reads, got PNG (install libpng-dev and build again)",
      where));
}

}  // namespace quanta::data::detail
