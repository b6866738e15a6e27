#pragma once

// Private: what products of codes with an int8 weight give.

#include <cstdint>
#include <memory>
#include <string_view>

namespace quanta::cpu {

/// Exact int32 sums in the calling thread's buffer (onednn::Buffer::Sums), [rows, channels].
/// What is to be added to each channel comes beside them, null for nothing.
struct Int8Sums {
  const std::int32_t* values;
  const std::int32_t* compensation;
  std::string_view kernel;
  std::shared_ptr<const void> owner;  ///< of the compensation
};

}  // namespace quanta::cpu
