#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "quanta/ops/cpu/lookup.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/runtime/tensor.h"

// Private: functions from codes to codes over whole tensors.

namespace quanta::cpu {

/// Everything that a table depends on.
struct TableKey {
  std::string_view function;  ///< its name; lives as long as the process
  DType dtype;
  double scale_in;
  std::int64_t zero_point_in;
  double scale_out;
  std::int64_t zero_point_out;
  std::array<double, 3> parameters{};  ///< of the function
  bool operator==(const TableKey&) const = default;
};

/// One slot of the calling thread's small cache (a newer table replaces an older one that falls
/// into the same slot), valid until its next call.
struct TableSlot {
  bool filled = false;
  TableKey key{};
  CodeTable table{};
};
TableSlot& table_slot(const TableKey& key);

/// The table of `function(code) -> code`, int32 both, for QUInt8 or QInt8.
template <typename Function>
const CodeTable& code_table(const TableKey& key, Function&& function) {
  TableSlot& slot = table_slot(key);
  if (slot.filled && slot.key == key) return slot.table;
  slot.filled = false;
  for (std::int32_t bits = 0; bits < 256; ++bits) {
    const std::int32_t code = key.dtype == DType::QInt8 && bits > 127 ? bits - 256 : bits;
    slot.table[static_cast<std::size_t>(bits)] = static_cast<std::uint8_t>(function(code));
  }
  slot.key = key;
  slot.filled = true;
  return slot.table;
}

/// dst = table[src] over all bytes of two dense tensors, in several threads.
void map_bytes(const Tensor& src, const Tensor& dst, const CodeTable& table);

/// out = function(x), element by element; both dense, of one memory order and dtype QUInt8, QInt8
/// (through the table) or QInt32.
template <typename Function>
void map_codes(const Tensor& x, const Tensor& out, const TableKey& key, Function&& function) {
  if (x.dtype() == DType::QInt32) {
    const auto* src = static_cast<const std::int32_t*>(x.data_ptr());
    auto* dst = static_cast<std::int32_t*>(out.data_ptr());
    parallel_elements(x.numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) dst[i] = function(src[i]);
    });
    return;
  }
  map_bytes(x, out, code_table(key, function));
}

}  // namespace quanta::cpu
