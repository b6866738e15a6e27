#include "quanta/ops/cpu/gemm/linear_dynamic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "quanta/ops/cpu/elementwise_kernels.h"
#include "quanta/ops/cpu/gelu.h"
#include "quanta/ops/cpu/gemm/gemm_int8.h"
#include "quanta/ops/cpu/gemm/gemv_int8.h"
#include "quanta/ops/cpu/gemm/sums_to_floats.h"
#include "quanta/ops/cpu/shared_range.h"
#include "quanta/ops/cpu/work_size.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/ceil_div.h"
#include "quanta/runtime/quant_math.h"

namespace quanta::cpu {

LinearWeight::LinearWeight(QuantizedWeight weight)
    : kernel(std::move(weight)), terms(kernel.weight()) {}

const CodePanels* LinearWeight::small_panels() const {
  // A large weight is not worth another copy: its rows are long as a rule, and then gemv_int8 is as
  // fast.
  constexpr std::int64_t kMaxBytes = std::int64_t{512} * 1024;
  return kernel.out_features() * kernel.in_features() > kMaxBytes ? nullptr : &kernel.panels();
}

std::shared_ptr<const GatePanels> LinearWeight::gate_panels(std::int64_t gate_count) const {
  const std::scoped_lock lock(gate_panels_mutex_);
  if (gate_panels_ == nullptr || gate_panels_->gates != gate_count) {
    gate_panels_ = std::make_shared<const GatePanels>(kernel.weight(), gate_count);
  }
  return gate_panels_;
}

namespace {

bool is_finite(const FloatRange& range) {
  return std::isfinite(range.min) && std::isfinite(range.max);
}

/// Throws ArgumentError for NaN and infinities.
math::QParams dynamic_qparams(const FloatRange& range, CodeBits bits) {
  QUANTA_CHECK(is_finite(range), "linear_dynamic: x: expected finite values, got a range of {}..{}",
               range.min, range.max);
  math::ChooseOptions options;
  options.reduce_range = bits == CodeBits::Seven;
  return math::choose_qparams(range.min, range.max, 0, 255, options);
}

/// Elements for which a second thread pays.
constexpr std::int64_t kElementGrain = 65536;

FloatRange find_range(const float* x, std::int64_t count) {
  SharedRange range;
  parallel_for(count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    range.add(float_range(x + begin, end - begin));
  });
  return range.get();
}

struct Activation {
  std::uint8_t* codes;
  std::int64_t stride;
  float scale;
  std::int32_t zero_point;
};

/// x [rows, depth] as codes in a buffer of this thread, rows `stride` apart and filled with zeros.
/// `known` is the range of x, or null.
Activation quantize_rows(const float* x, std::int64_t rows, std::int64_t depth, std::int64_t stride,
                         CodeBits bits, const FloatRange* known) {
  // What is wrong with x is told from x.
  const bool is_known = known != nullptr && is_finite(*known);
  const math::QParams qparams =
      dynamic_qparams(is_known ? *known : find_range(x, rows * depth), bits);
  const auto scale = static_cast<float>(qparams.scale);
  const auto zero_point = static_cast<std::int32_t>(qparams.zero_point);
  // A reduced range, too, is cut off beyond 255 only, as in torch.
  const QuantizeArgs args{math::inverse_scale(scale), zero_point, 0, 255, 255};

  const std::int64_t readable = round_up(rows, kGemmRowAlignment) * stride;
  auto* codes = reinterpret_cast<std::uint8_t*>(
      onednn::thread_buffer(onednn::Buffer::Padded, static_cast<std::size_t>(readable)));
  if (stride == depth) {
    parallel_for(rows * depth, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      quantize(x + begin, codes + begin, end - begin, args, Store::Cached);
    });
  } else {
    for (std::int64_t row = 0; row < rows; ++row) {
      quantize(x + row * depth, codes + row * stride, depth, args, Store::Cached);
      std::memset(codes + row * stride + depth, 0, static_cast<std::size_t>(stride - depth));
    }
  }
  return {codes, stride, scale, zero_point};
}

std::int32_t sum_codes(const std::uint8_t* codes, std::int64_t count) {
  std::uint32_t sum = 0;
  for (std::int64_t k = 0; k < count; ++k) sum += codes[k];
  return static_cast<std::int32_t>(sum);
}

/// A few rows: sums and floats of a thread's channels one after the other. `panels` may be null.
void few_rows(const Activation& src, std::int64_t rows, const LinearInt8& kernel,
              const CodePanels* panels, CodeBits bits, const SumsToFloats& terms, float* out) {
  const std::int64_t channels = kernel.out_features();
  const std::int64_t depth = kernel.in_features();
  std::array<std::int32_t, kMaxFewRows> src_sums{};
  if (terms.zero_points != nullptr) {
    for (std::int64_t row = 0; row < rows; ++row) {
      src_sums[static_cast<std::size_t>(row)] = sum_codes(src.codes + row * src.stride, depth);
    }
  }
  const PanelProduct in_panels{src.codes, rows, src.stride, bits, panels};
  const GemvInt8 as_it_is{src.codes, rows, src.stride, bits, kernel.weight().codes(),
                          channels,  depth};
  const std::int64_t unit = panels != nullptr ? kPanelChannels : 1;
  const std::int64_t grain = product_channel_grain(rows, depth, channels);
  parallel_for(ceil_div(channels, unit), ceil_div(grain, unit),
               [&](std::int64_t begin, std::int64_t end) {
                 auto* sums = reinterpret_cast<std::int32_t*>(out);
                 if (panels != nullptr) {
                   gemv_int8_panels(in_panels, begin, end, sums);
                 } else {
                   gemv_int8(as_it_is, begin, end, sums);
                 }
                 SumsToFloats row_terms = terms;
                 for (std::int64_t row = 0; row < rows; ++row) {
                   row_terms.src_sum = src_sums[static_cast<std::size_t>(row)];
                   sums_to_floats(row_terms, begin * unit, std::min(end * unit, channels),
                                  out + row * channels);
                 }
               });
}

/// Products and floats block by block, each thread with channels of its own. `range` is that of the
/// floats, or null.
void many_rows(const PanelProduct& call, const GemmOutput& output, FloatRange* range) {
  const CodePanels& weight = *call.weight;
  const std::int64_t panels = weight.count();
  const std::int64_t grain =
      channel_grain(call.rows * weight.in_features * weight.out_features, weight.out_features);
  constexpr std::int64_t kUnit = kGemmPanels;
  SharedRange all;
  parallel_for(ceil_div(panels, kUnit), grain / (kUnit * kPanelChannels) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 RangeLanes written;
                 GemmOutput own = output;
                 if (range != nullptr) own.range = &written;
                 gemm_int8(call, own, begin * kUnit, std::min(end * kUnit, panels));
                 if (range != nullptr) all.add(written.all());
               });
  if (range != nullptr) *range = all.get();
}

/// The tail of floats that another kernel has written.
void finish_rows(const LinearTail& tail, std::int64_t count, float* out) {
  const bool gelu = tail.end == GemmEnd::Gelu;
  if (!gelu && tail.addend == nullptr) return;
  parallel_for(count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    if (gelu) gelu_row(GeluKind::Erf, out + begin, end - begin, out + begin);
    if (tail.addend != nullptr) {
      float_binary(FloatBinary::Add, out + begin, tail.addend + begin, out + begin, end - begin,
                   Rhs::Row, Store::Cached);
    }
  });
}

/// The product of some rows with a weight, by the kernel that suits it.
class RowsProduct {
 public:
  /// `range` is that of what comes out, or null.
  RowsProduct(const LinearWeight& packed, std::int64_t rows, CodeBits bits, const LinearTail& tail,
              FloatRange* range)
      : packed_(packed),
        rows_(rows),
        bits_(bits),
        tail_(tail),
        range_(range),
        small_panels_(packed.small_panels()),
        kernel_(choose_kernel(
            DynamicLinear{.rows = rows,
                          .in_features = packed.kernel.in_features(),
                          .weight_zero_points = packed.kernel.weight().has_zero_points(),
                          .panels = small_panels_ != nullptr})) {}

  /// Bytes from one row of codes to the next.
  std::int64_t src_stride() const {
    const std::int64_t depth = packed_.kernel.in_features();
    if (kernel_ == Int8Kernel::FewRows) {
      return round_up(depth, small_panels_ != nullptr ? kPanelDepth : kCodeRowAlignment);
    }
    return kernel_ == Int8Kernel::Floats ? round_up(depth, kPanelDepth) : depth;
  }

  std::string_view run(const Activation& src, float* out) const {
    const ChannelTerms& terms = packed_.terms;
    const LinearInt8& kernel = packed_.kernel;
    const Tensor& bias = kernel.weight().bias();
    const bool few = kernel_ == Int8Kernel::FewRows;
    const SumsToFloats args{src.scale,
                            src.zero_point,
                            terms.scales.data(),
                            terms.sums.data(),
                            few && !terms.zero_points.empty() ? terms.zero_points.data() : nullptr,
                            0,
                            bias.defined() ? static_cast<const float*>(bias.data_ptr()) : nullptr,
                            tail_.end == GemmEnd::ReLU};
    if (kernel_ == Int8Kernel::Floats) return run_blocks(src, args, out);
    std::string_view name = "quanta:gemv";
    if (few) {
      few_rows(src, rows_, kernel, small_panels_, bits_, args, out);
    } else {
      name = run_products(src, args, out);
    }
    const std::int64_t count = rows_ * kernel.out_features();
    finish_rows(tail_, count, out);
    if (range_ != nullptr) *range_ = find_range(out, count);
    return name;
  }

 private:
  std::string_view run_blocks(const Activation& src, const SumsToFloats& args, float* out) const {
    const PanelProduct call{src.codes, rows_, src.stride, bits_, &packed_.kernel.panels()};
    many_rows(call, {.terms = args, .end = tail_.end, .addend = tail_.addend, .dst = out}, range_);
    return gemm_int8_name(call);
  }

  std::string_view run_products(const Activation& src, const SumsToFloats& args, float* out) const {
    const std::int64_t channels = packed_.kernel.out_features();
    const std::string_view name =
        packed_.kernel.products(rows_, src.codes, reinterpret_cast<std::int32_t*>(out));
    parallel_for(rows_, std::max<std::int64_t>(kElementGrain / channels, 1),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t row = begin; row < end; ++row) {
                     sums_to_floats(args, 0, channels, out + row * channels);
                   }
                 });
    return name;
  }

  const LinearWeight& packed_;
  std::int64_t rows_;
  CodeBits bits_;
  LinearTail tail_;
  FloatRange* range_;
  const CodePanels* small_panels_;
  Int8Kernel kernel_;
};

}  // namespace

std::string_view linear_dynamic_rows(const float* x, std::int64_t rows,
                                     std::span<const LinearDynamicTarget> targets, CodeBits bits,
                                     const LinearTail& tail, const LinearRanges& ranges) {
  std::string_view name;
  Activation src{};
  for (const LinearDynamicTarget& target : targets) {
    const RowsProduct product(*target.packed, rows, bits, tail, ranges.of_out);
    const std::int64_t depth = target.packed->kernel.in_features();
    // Kernels of one kind share the codes.
    if (src.codes == nullptr || src.stride != product.src_stride()) {
      src = quantize_rows(x, rows, depth, product.src_stride(), bits, ranges.of_x);
    }
    name = product.run(src, target.out);
  }
  return name;
}

}  // namespace quanta::cpu
