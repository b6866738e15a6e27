#include "quanta/ops/cpu/code_table.h"

#include <array>
#include <bit>
#include <functional>
#include <memory>
#include <utility>

namespace quanta::cpu {
namespace {

// A network has a table for most of its activations; two that took turns in a slot would be calculated
// in each run.
constexpr std::size_t kSlots = 512;

void mix(std::uint64_t& hash, std::uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15U;
  hash ^= hash >> 32;
}

}  // namespace

TableSlot& table_slot(const TableKey& key) {
  using Slots = std::array<std::unique_ptr<TableSlot>, kSlots>;
  thread_local const auto slots = std::make_unique<Slots>();
  std::uint64_t hash = static_cast<std::uint64_t>(key.dtype);
  mix(hash, std::hash<std::string_view>()(key.function));
  mix(hash, std::bit_cast<std::uint64_t>(key.scale_in));
  mix(hash, std::bit_cast<std::uint64_t>(key.scale_out));
  mix(hash, static_cast<std::uint64_t>(key.zero_point_in));
  mix(hash, static_cast<std::uint64_t>(key.zero_point_out));
  for (const double parameter : key.parameters) mix(hash, std::bit_cast<std::uint64_t>(parameter));
  // One of two that has it or is free, or else the first.
  std::unique_ptr<TableSlot>& first = (*slots)[hash % kSlots];
  std::unique_ptr<TableSlot>& second = (*slots)[hash / kSlots % kSlots];
  if (first == nullptr) first = std::make_unique<TableSlot>();
  if (!first->filled || first->key == key) return *first;
  if (second == nullptr) second = std::make_unique<TableSlot>();
  return !second->filled || second->key == key ? *second : *first;
}

void map_bytes(const Tensor& src, const Tensor& dst, const CodeTable& table) {
  parallel_lookup(static_cast<const std::uint8_t*>(src.data_ptr()),
                  static_cast<std::uint8_t*>(dst.data_ptr()), src.numel(), table);
}

}  // namespace quanta::cpu
