#pragma once

// Shared by the tests of elementwise ops: instruction sets, and tensors in awkward layouts.

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "instruction_sets.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/tensor.h"

namespace quanta::test {

template <typename Body>
void for_each_target(const Body& body) {
  for_each_code(body);
}

inline std::vector<std::int64_t> codes_of(const Tensor& x) { return x.to_int64_vector(); }

/// How a tensor lies in memory.
enum class Layout { Contiguous, ChannelsLast, Permuted, EverySecond, Expanded };
inline constexpr Layout kLayouts[] = {Layout::Contiguous, Layout::ChannelsLast, Layout::Permuted,
                                      Layout::EverySecond, Layout::Expanded};

/// Calls make(sizes) for a tensor and gives a view of the sizes [2, c, h, w] in `layout`.
template <typename Make>
Tensor in_layout(Layout layout, std::int64_t c, std::int64_t h, std::int64_t w, Make&& make) {
  switch (layout) {
    case Layout::Contiguous:
      return make(Dims{2, c, h, w});
    case Layout::ChannelsLast:
      return make(Dims{2, c, h, w}).contiguous(MemoryFormat::ChannelsLast);
    case Layout::Permuted:
      return make(Dims{w, 2, h, c}).permute({1, 3, 2, 0});
    case Layout::EverySecond:
      return make(Dims{2, c, h, 2 * w + 1}).slice(3, 1, 2 * w + 1, 2);
    case Layout::Expanded:
      return make(Dims{2, c, 1, w}).expand({2, c, h, w});
  }
  return {};
}

/// Random codes over the whole range of QUInt8 and QInt8, and a few hundred wide for QInt32.
inline QTensor random_codes(const Dims& sizes, DType dtype, double scale, std::int64_t zero_point,
                            Generator& generator) {
  const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
  switch (dtype) {
    case DType::QUInt8:
      return QTensor::from_int_repr(randint(0, 256, sizes, DType::UInt8, generator), quantizer);
    case DType::QInt8:
      return QTensor::from_int_repr(randint(-128, 128, sizes, DType::Int8, generator), quantizer);
    default:
      return QTensor::from_int_repr(randint(-700, 700, sizes, DType::Int32, generator), quantizer);
  }
}

}  // namespace quanta::test
