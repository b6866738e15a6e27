#include "random_tensor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <vector>

#include "quanta/ops/catalogue.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/error.h"

namespace quanta::api_fuzz {
namespace {

constexpr std::int64_t kMostElements = 200000;

constexpr std::array kTypes{DType::Float32,      DType::Float64,    DType::Float16, DType::BFloat16,
                            DType::Float8E4M3FN, DType::Float8E5M2, DType::UInt8,   DType::Int8,
                            DType::Int16,        DType::UInt16,     DType::Int32,   DType::Int64,
                            DType::Bool,         DType::QUInt8,     DType::QInt8,   DType::QInt32,
                            DType::QUInt4x2,     DType::QUInt2x4};

std::byte* memory_of(const Tensor& x) { return static_cast<std::byte*>(x.data_ptr()); }

// Of a tensor without gaps. Truth values have one bit.
void fill_with_bits(const Tensor& x, Random& random) {
  std::byte* memory = memory_of(x);
  const std::size_t count = x.nbytes();
  for (std::size_t i = 0; i < count; ++i) memory[i] = static_cast<std::byte>(random.bits());
  if (x.dtype() != DType::Bool) return;
  for (std::size_t i = 0; i < count; ++i) memory[i] &= std::byte{1};
}

template <typename Make>
Tensor unless_refused(const Tensor& x, Make&& make) {
  try {
    return make();
  } catch (const Error&) {
    return x;
  }
}

Quantizer quantizer_for(const Tensor& like, const Dims& sizes, Random& random) {
  const Quantizer& quantizer = like.impl()->quantizer;
  if (!is_per_channel(quantizer.scheme)) return quantizer;
  const auto axis = static_cast<std::size_t>(quantizer.axis);
  if (axis < sizes.size() && axis < like.sizes().size() && sizes[axis] == like.sizes()[axis]) {
    return quantizer;
  }
  if (axis >= sizes.size() || sizes[axis] > kMostElements) return Quantizer::per_tensor(0.5, 0);
  const auto count = static_cast<std::size_t>(sizes[axis]);
  std::vector<double> scales(count);
  for (double& scale : scales)
    scale = 0.01 * static_cast<double>(1 + random.below(std::uint64_t{9}));
  return Quantizer::per_channel(scales, std::vector<std::int64_t>(count, 0), quantizer.axis);
}

Dims other_order(std::int64_t rank, Random& random) {
  Dims order;
  for (std::int64_t d = 0; d < rank; ++d) order.push_back(d);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

Tensor permuted(const Tensor& x, Random& random) {
  const Dims order = other_order(x.dim(), random);
  Dims back = order;
  for (std::size_t i = 0; i < order.size(); ++i) {
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  return x.permute(order).clone(MemoryFormat::Contiguous).permute(back);
}

// Every other element of memory with twice the size along `dim`, behind an offset.
Tensor with_gaps(const Tensor& x, Random& random) {
  if (x.dim() == 0 || !is_small(x.sizes())) return x;
  const std::int64_t dim = random.below(x.dim());
  const std::int64_t size = x.size(dim);
  Dims sizes = x.sizes();
  sizes[static_cast<std::size_t>(dim)] = 2 * size + 1;
  if (!is_small(sizes)) return x;
  const Tensor wide = fresh(x, sizes, random);
  const Tensor part = random.one_in(2) ? wide.slice(dim, 1, 2 * size + 1, 2)
                                       : wide.narrow(dim, 1 + random.below(size + 1), size);
  part.copy_(x);
  return part;
}

}  // namespace

bool is_small(const Dims& sizes) {
  double count = 1.0;
  for (const std::int64_t size : sizes) count *= static_cast<double>(size == 0 ? 1 : size);
  return count <= static_cast<double>(kMostElements);
}

std::vector<std::byte> bytes_of(const Tensor& x) {
  const Tensor dense = x.contiguous();
  const std::byte* memory = memory_of(dense);
  return {memory, memory + dense.nbytes()};
}

std::int64_t edge_integer(Random& random) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  static constexpr std::array<std::int64_t, 22> kValues{
      0,        1,        -1,   2,     3,          4,           5,           7,
      -2,       255,      -128, 65536, 2147483647, -2147483648, 2147483648L, 4294967296L,
      1L << 40, 1L << 62, 100,  1000,  kMost,      -kMost - 1};
  return random.among(kValues);
}

double edge_number(Random& random) {
  using Limits = std::numeric_limits<double>;
  static constexpr std::array<double, 22> kValues{0.0,
                                                  -0.0,
                                                  1.0,
                                                  -1.0,
                                                  0.5,
                                                  2.0,
                                                  -2.0,
                                                  1e-300,
                                                  1e-45,
                                                  1e-38,
                                                  1e-10,
                                                  1e10,
                                                  3.4e38,
                                                  1e39,
                                                  -1e39,
                                                  255.0,
                                                  1e300,
                                                  65504,
                                                  Limits::infinity(),
                                                  -Limits::infinity(),
                                                  Limits::quiet_NaN(),
                                                  Limits::max()};
  return random.among(kValues);
}

Quantizer edge_quantizer(DType dtype, const Dims& sizes, Random& random) {
  static constexpr std::array<double, 9> kScales{1e-45, 1.2e-38, 1e-10, 0.01,  0.05,
                                                 1.0,   300.0,   1e10,  3.4e38};
  const auto scale = [&] {
    return random.one_in(20) ? edge_number(random) : random.among(kScales);
  };
  const IntRange range = quant_range(dtype);
  const auto zero_point = [&] {
    switch (random.below(std::uint64_t{5})) {
      case 0:
        return range.min;
      case 1:
        return range.max;
      case 2:
        return range.min + (range.max - range.min) / 2;
      case 3:
        return random.one_in(10) ? edge_integer(random) : std::int64_t{0};
      default:
        return std::int64_t{0};
    }
  };
  if (sizes.empty() || random.one_in(2)) return Quantizer::per_tensor(scale(), zero_point());
  const std::int64_t axis = random.below(static_cast<std::int64_t>(sizes.size()));
  const std::int64_t size = sizes[static_cast<std::size_t>(axis)];
  const auto count = static_cast<std::size_t>(size > kMostElements ? 1 : size);
  if (random.one_in(4)) {
    std::vector<float> scales(count);
    std::vector<float> zero_points(count);
    for (float& value : scales) value = static_cast<float>(scale() > 3e38 ? 3e38 : scale());
    for (float& value : zero_points)
      value = static_cast<float>(random.below(std::uint64_t{20})) / 3;
    return Quantizer::per_channel_float_qparams(scales, zero_points, axis);
  }
  std::vector<double> scales(count);
  std::vector<std::int64_t> zero_points(count);
  for (double& value : scales) value = scale();
  for (std::int64_t& value : zero_points) value = zero_point();
  return Quantizer::per_channel(scales, zero_points, axis);
}

Tensor fresh(const Tensor& like, const Dims& sizes, Random& random) {
  return unless_refused(like, [&]() -> Tensor {
    if (!like.is_quantized()) return sample_tensor(sizes, like.dtype(), random.bits());
    const QTensor x = QTensor::empty(sizes, like.dtype(), quantizer_for(like, sizes, random));
    fill_with_bits(x, random);
    return x;
  });
}

Tensor with_edge_values(const Tensor& x, Random& random) {
  if (x.numel() > kMostElements) return x;
  const Tensor result = x.clone(MemoryFormat::Contiguous);
  if (!x.is_floating_point()) {
    fill_with_bits(result, random);
    return result;
  }
  if (random.one_in(4)) {
    fill_with_bits(result, random);
    return result;
  }
  const bool all = random.one_in(3);
  std::vector<float> values = result.to_float_vector();
  for (float& value : values) {
    if (!all && !random.one_in(4)) continue;
    // Written out: a conversion of what float32 cannot hold is undefined.
    const double number = edge_number(random);
    constexpr double kMost = std::numeric_limits<float>::max();
    value = static_cast<float>(number > kMost || number < -kMost
                                   ? (number > 0 ? 1 : -1) * std::numeric_limits<double>::infinity()
                                   : number);
  }
  return Tensor::from_values(values, x.sizes()).to(x.dtype());
}

Tensor with_edge_quantizer(const Tensor& x, Random& random) {
  if (!x.is_quantized() || x.numel() > kMostElements) return x;
  return unless_refused(x, [&]() -> Tensor {
    const QTensor result =
        QTensor::empty(x.sizes(), x.dtype(), edge_quantizer(x.dtype(), x.sizes(), random));
    fill_with_bits(result, random);
    return result;
  });
}

Tensor with_other_size(const Tensor& x, Random& random) {
  if (x.dim() == 0) return x;
  static constexpr std::array<std::int64_t, 12> kSizes{0, 0, 1, 1, 2, 3, 4, 17, 33, 64, 300, 5000};
  Dims sizes = x.sizes();
  sizes[random.below(sizes.size())] = random.among(kSizes);
  if (!is_small(sizes)) return x;
  return fresh(x, sizes, random);
}

Tensor with_other_rank(const Tensor& x, Random& random) {
  Dims sizes;
  const std::int64_t rank = random.below(std::int64_t{7});
  for (std::int64_t d = 0; d < rank; ++d) sizes.push_back(random.below(std::int64_t{5}));
  return fresh(x, sizes, random);
}

Tensor with_other_dtype(const Tensor& x, Random& random) {
  if (x.numel() > kMostElements) return x;
  const DType dtype = random.among(kTypes);
  return unless_refused(x, [&] { return sample_tensor(x.sizes(), dtype, random.bits()); });
}

Tensor empty_and_huge(const Tensor& x, Random& random) {
  if (x.dim() == 0) return x;
  Dims sizes = x.sizes();
  sizes[random.below(sizes.size())] = 0;
  for (std::int64_t& size : sizes) {
    if (size != 0 && random.one_in(2)) size = std::max<std::int64_t>(edge_integer(random), 1);
  }
  return fresh(x, sizes, random);
}

Tensor with_other_layout(const Tensor& x, Random& random) {
  if (x.numel() > kMostElements) return x;
  return unless_refused(x, [&] {
    Tensor result = x;
    const std::int64_t views = 1 + random.below(std::int64_t{3});
    for (std::int64_t i = 0; i < views; ++i) {
      switch (random.below(std::uint64_t{4})) {
        case 0:
          result = permuted(result, random);
          break;
        case 1:
          result = result.contiguous(MemoryFormat::ChannelsLast);
          break;
        default:
          result = with_gaps(result, random);
      }
    }
    return result;
  });
}

Tensor with_shared_elements(const Tensor& x, Random& random) {
  if (x.dim() == 0 || x.numel() == 0 || x.numel() > kMostElements) return x;
  return unless_refused(x, [&] {
    const std::int64_t dim = random.below(x.dim());
    if (random.one_in(2)) return x.narrow(dim, 0, 1).expand(x.sizes());
    const Tensor dense = x.clone(MemoryFormat::Contiguous);
    Dims strides = dense.strides();
    for (std::int64_t& stride : strides) {
      if (stride > 1 && random.one_in(2)) stride = 1 + random.below(stride);
    }
    return dense.as_strided(x.sizes(), strides, 0);
  });
}

}  // namespace quanta::api_fuzz
