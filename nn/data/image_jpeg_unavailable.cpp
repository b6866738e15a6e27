#include "quanta/nn/data/detail/image_codecs.h"
#include "quanta/runtime/check.h"

namespace quanta::data::detail {

const bool kHasJpeg = false;

Tensor decode_jpeg(std::span<const std::byte>, ImageMode, const std::string& where) {
  throw UnsupportedError(fmt::format(
      "{}: expected a format that this build reads, got JPEG (install libjpeg-dev and build again)",
      where));
}

}  // namespace quanta::data::detail
