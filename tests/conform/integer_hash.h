#pragma once

#include <cstdint>
#include <string>

#include "value.h"

namespace quanta::conform {

/// A hash of the integers in outputs (codes, indices, bools, JSON integers; with dtypes and sizes),
/// to see whether two runs of a suite gave the same ones. FNV-1a, 64 bits.
class IntegerHash {
 public:
  void add(const Value& value);
  void add(const std::string& text);
  /// 16 hexadecimal digits.
  std::string hex() const;

 private:
  void add(std::int64_t value);
  void add_byte(std::uint8_t byte);

  std::uint64_t state_ = 14695981039346656037ULL;
};

}  // namespace quanta::conform
