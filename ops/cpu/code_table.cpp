#include "quanta/ops/cpu/code_table.h"

#include <array>
#include <bit>
#include <memory>
#include <string>
#include <utility>

#include "quanta/runtime/recorder.h"

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

std::string_view to_string(CodeFunction function) {
  static constexpr std::array<std::string_view, 14> kNames{
      "add_scalar", "add_scalar_relu", "requantize", "requantize_relu", "leaky_relu",
      "hardswish",  "hardsigmoid",     "elu",        "sigmoid",         "tanh",
      "gelu",       "gelu_tanh",       "silu",       "threshold"};
  return kNames[static_cast<std::size_t>(function)];
}

void map_bytes(const Tensor& src, const Tensor& dst, const CodeTable& table) {
  parallel_lookup(static_cast<const std::uint8_t*>(src.data_ptr()),
                  static_cast<std::uint8_t*>(dst.data_ptr()), src.numel(), table);
}

namespace {

replay::Kernel map_bytes_kernel(std::shared_ptr<const CodeTable> table) {
  return [table = std::move(table)](const replay::Frame& frame) {
    map_bytes(frame.in(), frame.out(), *table);
  };
}

}  // namespace

replay::ByteTableKernel map_bytes_kernels() { return map_bytes_kernel; }

void record_map_bytes(std::string_view op, const Tensor& src, const Tensor& dst,
                      const CodeTable& table) {
  if (!replay::is_recording()) return;
  const auto kept = std::make_shared<const CodeTable>(table);
  replay::record({.op = op,
                  .inputs = {src},
                  .outputs = {dst},
                  .run = map_bytes_kernel(kept),
                  .in_place = true,
                  .table = kept,
                  .with_table = map_bytes_kernel});
}

}  // namespace quanta::cpu
