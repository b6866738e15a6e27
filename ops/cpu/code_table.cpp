#include "quanta/ops/cpu/code_table.h"

#include <array>
#include <bit>
#include <memory>

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
  std::uint64_t hash =
      static_cast<std::uint64_t>(key.function) * 64 + static_cast<std::uint64_t>(key.dtype);
  mix(hash, std::bit_cast<std::uint64_t>(key.scale_in));
  mix(hash, std::bit_cast<std::uint64_t>(key.scale_out));
  mix(hash, static_cast<std::uint64_t>(key.zero_point_in));
  mix(hash, static_cast<std::uint64_t>(key.zero_point_out));
  mix(hash, std::bit_cast<std::uint64_t>(key.parameter0));
  mix(hash, std::bit_cast<std::uint64_t>(key.parameter1));
  mix(hash, std::bit_cast<std::uint64_t>(key.parameter2));
  return (*slots)[hash % kSlots];
}

}  // namespace quanta::cpu
