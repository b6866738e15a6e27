#include "registry.h"

#include <array>
#include <iterator>
#include <utility>

#include "quanta/ops/quantize.h"
#include "quanta/runtime/error.h"

namespace quanta::coverage {
namespace {

enum class Layout : std::uint8_t { Contiguous, ChannelsLast, Strided };
enum class Scheme : std::uint8_t { PerTensor, PerChannel };

constexpr std::array kTypes{DType::Float32,  DType::Float64, DType::Float16, DType::BFloat16,
                            DType::UInt8,    DType::Int8,    DType::Int32,   DType::Int64,
                            DType::Bool,     DType::QUInt8,  DType::QInt8,   DType::QInt32,
                            DType::QUInt4x2, DType::QUInt2x4};
constexpr std::int64_t kChannels = 4;

Tensor dense(const Dims& sizes, DType dtype, Scheme scheme) {
  if (!is_quantized(dtype)) return Tensor::ones(sizes, dtype);
  const Quantizer quantizer =
      scheme == Scheme::PerTensor
          ? Quantizer::per_tensor(scale, zero_point)
          : Quantizer::per_channel(std::vector<double>(kChannels, scale),
                                   std::vector<std::int64_t>(kChannels, zero_point), 1);
  const Tensor codes = QTensor::empty(sizes, dtype, quantizer);
  if (!is_sub_byte(dtype)) codes.fill_(0.5);
  return codes;
}

Tensor make(Dims sizes, DType dtype, Scheme scheme, Layout layout) {
  switch (layout) {
    case Layout::Contiguous:
      return dense(sizes, dtype, scheme);
    case Layout::ChannelsLast:
      // Rows of a matrix have no other order than their own.
      if (sizes.size() < 3) return dense(sizes, dtype, scheme);
      return dense(sizes, dtype, scheme).contiguous(MemoryFormat::ChannelsLast);
    case Layout::Strided: {
      const std::size_t last = sizes.size() == 2 ? 0 : sizes.size() - 1;
      const std::int64_t wanted = sizes[last];
      sizes[last] = 2 * wanted;
      return dense(sizes, dtype, scheme).slice(static_cast<std::int64_t>(last), 0, 2 * wanted, 2);
    }
  }
  return {};
}

template <typename T>
Sample<T> sample(DType dtype, Scheme scheme, Layout layout) {
  return {T(make({2, kChannels, 6, 6}, dtype, scheme, layout)),
          T(make({2, kChannels, 6}, dtype, scheme, layout)),
          T(make({2, kChannels, 6, 6, 6}, dtype, scheme, layout)),
          T(make({6, kChannels}, dtype, scheme, layout))};
}

bool runs(const Use& use, DType dtype, Scheme scheme, Layout layout) {
  try {
    if (use.any != nullptr) {
      use.any(sample<Tensor>(dtype, scheme, layout));
    } else {
      if (!is_quantized(dtype)) return false;
      use.quantized(sample<QTensor>(dtype, scheme, layout));
    }
  } catch (const Error&) {
    return false;
  }
  return true;
}

}  // namespace

Tensor ones(const Dims& sizes) { return Tensor::ones(sizes); }

QTensor weight(const Dims& sizes) {
  const QTensor result = QTensor::empty(sizes, scale, 0, DType::QInt8);
  result.fill_(0.2);
  return result;
}

Tensor indices() {
  constexpr std::array<std::int64_t, 2> kRows{0, 1};
  return Tensor::from_int64(kRows);
}

Taken try_row(const Row& row) {
  Taken taken;
  const Use& use = row.use;
  if (use.any == nullptr && use.quantized == nullptr) return taken;
  for (const DType dtype : kTypes) {
    if (runs(use, dtype, Scheme::PerTensor, Layout::Contiguous)) taken.types.push_back(dtype);
    if (is_quantized(dtype) && !is_sub_byte(dtype) &&
        runs(use, dtype, Scheme::PerChannel, Layout::Contiguous)) {
      taken.per_channel.push_back(dtype);
    }
  }
  // A memory order counts when every element type that works at all works in it; those below a
  // byte are always contiguous.
  taken.has_layouts = use.text.find("matrix") == std::string_view::npos;
  taken.contiguous = !taken.types.empty() || !taken.per_channel.empty();
  taken.channels_last = taken.strided = taken.contiguous;
  const auto narrow = [&](DType dtype, Scheme scheme) {
    if (is_sub_byte(dtype)) return;
    taken.channels_last = taken.channels_last && runs(use, dtype, scheme, Layout::ChannelsLast);
    taken.strided = taken.strided && runs(use, dtype, scheme, Layout::Strided);
  };
  for (const DType dtype : taken.types) narrow(dtype, Scheme::PerTensor);
  for (const DType dtype : taken.per_channel) narrow(dtype, Scheme::PerChannel);
  return taken;
}

std::vector<Section> sections() {
  std::vector<Section> all;
  for (auto part : {tensor_sections, functional_sections, nn_functional_sections, module_sections,
                    quantizer_sections, workflow_sections}) {
    std::vector<Section> some = part();
    all.insert(all.end(), std::make_move_iterator(some.begin()),
               std::make_move_iterator(some.end()));
  }
  return all;
}

}  // namespace quanta::coverage
