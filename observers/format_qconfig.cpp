#include "quanta/observers/format_qconfig.h"

#include <array>
#include <string>

#include "quanta/observers/fake_quantize.h"
#include "quanta/observers/format_fake_quantize.h"
#include "quanta/observers/histogram_observer.h"
#include "quanta/observers/min_max_observer.h"
#include "quanta/runtime/check.h"

namespace quanta {
namespace {

constexpr std::array kFormats{
    NumberFormat{"int8", "int8 per channel", "uint8 per tensor", 8.0},
    NumberFormat{"int4-block32", "int4, blocks of 32", "uint8 per tensor", 5.0},
    NumberFormat{"fp8", "E4M3 per tensor", "E4M3 per tensor", 8.0},
    NumberFormat{"fp8-e5m2", "E5M2 per tensor", "E5M2 per tensor", 8.0},
    NumberFormat{"mxfp8", "E4M3, blocks of 32", "E4M3, blocks of 32", 8.25},
    NumberFormat{"mxfp6", "E3M2, blocks of 32", "E3M2, blocks of 32", 6.25},
    NumberFormat{"mxfp4", "E2M1, blocks of 32", "E2M1, blocks of 32", 4.25},
    NumberFormat{"nvfp4", "E2M1, blocks of 16", "E2M1, blocks of 16", 4.5},
};

ObserverFactory uint8_activation() {
  return FakeQuantize::with_args(HistogramObserver::with_args({.dtype = DType::QUInt8}));
}

QConfig scaled_float(NumBits bits) {
  const ObserverFactory both =
      FormatFakeQuantize::with_args({.kind = FormatKind::ScaledFloat, .num_bits = bits});
  return {both, both};
}

QConfig dynamic_blocks(NumBits bits, NumBits scale_bits, std::int64_t block_size) {
  FormatOptions options{.kind = FormatKind::DynamicBlocks,
                        .num_bits = bits,
                        .scale_bits = scale_bits,
                        .block_size = block_size,
                        .block_axis = BlockAxis::Channels};
  const ObserverFactory activation = FormatFakeQuantize::with_args(options);
  options.block_axis = BlockAxis::Rows;
  return {activation, FormatFakeQuantize::with_args(options)};
}

QConfig int8() {
  return {uint8_activation(),
          FakeQuantize::with_args(PerChannelMinMaxObserver::with_args(
              {.dtype = DType::QInt8, .qscheme = QScheme::PerChannelSymmetric}))};
}

QConfig int4_blocks() {
  return {uint8_activation(), FormatFakeQuantize::with_args({.kind = FormatKind::IntegerBlocks,
                                                             .num_bits = NumBits::integer(4),
                                                             .block_size = 32,
                                                             .block_axis = BlockAxis::Rows})};
}

}  // namespace

std::span<const NumberFormat> number_formats() { return kFormats; }

const NumberFormat& number_format(std::string_view name) {
  std::string names;
  for (const NumberFormat& format : kFormats) {
    if (format.name == name) return format;
    names += (names.empty() ? "" : ", ") + std::string(format.name);
  }
  throw ArgumentError(fmt::format("number_format: name: expected one of {}, got {}", names, name));
}

QConfig qconfig_for_format(std::string_view name) {
  const NumBits power_of_two = NumBits::floating(8, 0);
  const std::string_view known = number_format(name).name;
  if (known == "int8") return int8();
  if (known == "int4-block32") return int4_blocks();
  if (known == "fp8") return scaled_float(NumBits::floating(4, 3));
  if (known == "fp8-e5m2") return scaled_float(NumBits::floating(5, 2));
  if (known == "mxfp8") return dynamic_blocks(NumBits::floating(4, 3), power_of_two, 32);
  if (known == "mxfp6") return dynamic_blocks(NumBits::floating(3, 2), power_of_two, 32);
  if (known == "mxfp4") return dynamic_blocks(NumBits::floating(2, 1), power_of_two, 32);
  return dynamic_blocks(NumBits::floating(2, 1), NumBits::floating(4, 3), 16);
}

}  // namespace quanta
