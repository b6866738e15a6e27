#include "quanta/ops/cpu/code_table.h"

#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <utility>

namespace quanta::cpu {
namespace {

constexpr std::size_t kSlots = 128;

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  hash ^= hash >> 32;
}

}  // namespace

TableSlot& table_slot(const TableKey& key) {
  thread_local const auto slots = std::make_unique<std::array<TableSlot, kSlots>>();
  std::uint64_t hash = static_cast<std::uint64_t>(key.dtype);
  mix(hash, std::hash<std::string_view>()(key.function));
  mix(hash, std::bit_cast<std::uint64_t>(key.scale_in));
  mix(hash, std::bit_cast<std::uint64_t>(key.scale_out));
  mix(hash, static_cast<std::uint64_t>(key.zero_point_in));
  mix(hash, static_cast<std::uint64_t>(key.zero_point_out));
  for (const double parameter : key.parameters) mix(hash, std::bit_cast<std::uint64_t>(parameter));
  return (*slots)[hash % kSlots];
}

void map_bytes(const Tensor& src, const Tensor& dst, const CodeTable& table) {
  parallel_lookup(static_cast<const std::uint8_t*>(src.data_ptr()),
                  static_cast<std::uint8_t*>(dst.data_ptr()), src.numel(), table);
}

}  // namespace quanta::cpu
