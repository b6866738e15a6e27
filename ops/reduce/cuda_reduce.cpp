#include "quanta/ops/reduce/cuda_reduce.h"

#include <algorithm>

#include "quanta/ops/reduce/cuda_kernels.h"
#include "quanta/ops/reduce/layout.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/quant_math.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cuda {
namespace {

using reduction::ReduceLayout;

/// The elements of x as the block of the layout, copied there if they lie otherwise.
class BlockOf {
 public:
  BlockOf(const Tensor& x, const ReduceLayout& layout) : memory_(layout.block(x)) {
    block.dtype = x.dtype();
    block.x = memory_.device_ptr();
    block.outer = layout.outer;
    block.count = layout.count;
    block.inner = layout.inner;
  }

  Block block;

 private:
  Tensor memory_;
};

// Sums of x as one for each result, or for each part of the only one.
struct Sums {
  Buffer memory;
  std::int64_t parts = 1;
};

Sums add_up(Device device, SumParams params) {
  const Block& block = params.block;
  const std::int64_t results = block.outer * block.inner;
  params.part = block.count;
  if (results == 1) {
    // As the CPU's threads share it.
    params.part = 65536;
    params.parts = ceil_div(block.count, params.part);
  }
  const std::int64_t count = results * std::max<std::int64_t>(params.parts, 1);
  Sums sums{Buffer(device, static_cast<std::size_t>(count) * sizeof(double)), params.parts};
  params.sums = sums.memory.as<double>();
  if (params.parts == 0) return sums;  // of nothing
  block.inner == 1 ? sum_rows(device, params) : sum_columns(device, params);
  return sums;
}

FinishParams finish_of(const Sums& sums, const Tensor& out, SumEnd end, double divisor) {
  FinishParams params;
  params.count = out.numel();
  params.parts = sums.parts;
  params.sums = sums.memory.as<double>();
  params.end = end;
  params.divisor = divisor;
  params.dtype = out.dtype();
  params.out = out.device_ptr();
  if (!out.is_quantized()) return params;
  const Quantizer& quantizer = out.impl()->quantizer;
  const IntRange range = quant_range(out.dtype());
  params.inv_scale = math::inverse_scale(static_cast<float>(quantizer.scale));
  params.zero_point = static_cast<std::int32_t>(quantizer.zero_point);
  params.low = static_cast<std::int32_t>(range.min);
  params.high = static_cast<std::int32_t>(range.max);
  return params;
}

// Codes count as what they stand for, or as they are.
SumParams sum_params(const Block& block, const Tensor& x, bool dequantizes) {
  SumParams params;
  params.block = block;
  params.dequantizes = dequantizes;
  if (!x.is_quantized()) return params;
  params.scale = static_cast<float>(x.impl()->quantizer.scale);
  params.zero_point = static_cast<std::int32_t>(x.impl()->quantizer.zero_point);
  return params;
}

}  // namespace

void find_extremes(const Tensor& x, const ReduceLayout& layout, Extreme extreme, Equals equals,
                   void* values, std::int64_t* indices) {
  constexpr std::int64_t kShort = 16;     // that one thread looks at sooner than a warp
  constexpr std::int64_t kOfPart = 4096;  // for which another warp pays
  constexpr std::int64_t kMostWarps = 4096;
  const BlockOf block(x, layout);
  ExtremeParams params;
  params.block = block.block;
  params.smallest = extreme == Extreme::Smallest;
  params.last = equals == Equals::Last;
  params.values = values;
  params.indices = indices;
  const Device device = x.device();
  if (layout.inner > 1 || layout.count <= kShort) return find_column_extremes(device, params);
  params.parts =
      std::clamp<std::int64_t>(kMostWarps / layout.outer, 1, ceil_div(layout.count, kOfPart));
  Buffer partial;
  if (params.parts > 1) {
    partial = Buffer(device,
                     static_cast<std::size_t>(layout.outer * params.parts) * sizeof(FoundExtreme));
    params.partial = partial.as<FoundExtreme>();
  }
  find_row_extremes(device, params);
  if (params.parts > 1) join_row_extremes(device, params);
}

void sum(const Tensor& x, const ReduceLayout& layout, const Tensor& out) {
  const BlockOf block(x, layout);
  SumParams params = sum_params(block.block, x, false);
  params.in_integers = !x.is_floating_point();
  const Sums sums = add_up(x.device(), params);
  FinishParams finish = finish_of(sums, out, SumEnd::Sum, 1.0);
  finish.in_integers = params.in_integers;
  finish_sums(x.device(), finish);
}

void mean(const Tensor& x, const ReduceLayout& layout, const Tensor& out) {
  const BlockOf block(x, layout);
  SumParams params = sum_params(block.block, x, x.is_quantized() && !layout.innermost);
  params.in_integers = x.is_quantized() && layout.innermost;
  const Sums sums = add_up(x.device(), params);
  FinishParams finish = finish_of(sums, out, x.is_quantized() ? SumEnd::CodeOfMean : SumEnd::Mean,
                                  static_cast<double>(layout.count));
  finish.in_integers = params.in_integers;
  finish_sums(x.device(), finish);
}

void spread(const Tensor& x, const ReduceLayout& layout, Spread kind, double correction,
            const Tensor& out) {
  const BlockOf block(x, layout);
  SumParams params = sum_params(block.block, x, x.is_quantized() && !layout.innermost);
  // Two passes: the second one sums squares of differences, which cannot cancel.
  Sums sums = add_up(x.device(), params);
  const Buffer means(x.device(), static_cast<std::size_t>(out.numel()) * sizeof(double));
  FinishParams finish = finish_of(sums, out, SumEnd::Mean, static_cast<double>(layout.count));
  finish.dtype = DType::Float64;
  finish.out = means.as<double>();
  finish_sums(x.device(), finish);
  params.means = means.as<double>();
  sums = add_up(x.device(), params);
  const SumEnd end = x.is_quantized()            ? SumEnd::CodeOfDeviation
                     : kind == Spread::Deviation ? SumEnd::Deviation
                                                 : SumEnd::Variance;
  finish = finish_of(sums, out, end, std::max(0.0, static_cast<double>(layout.count) - correction));
  // The zero point drops out of a deviation of codes as they are.
  if (x.is_quantized() && layout.innermost) finish.factor = x.impl()->quantizer.scale;
  finish_sums(x.device(), finish);
}

void product(const Tensor& x, const ReduceLayout& layout, const Tensor& out) {
  const BlockOf block(x, layout);
  multiply_columns(x.device(), {.block = block.block, .out = out.device_ptr()});
}

}  // namespace quanta::cuda
