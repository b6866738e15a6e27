#include "quanta/ops/pooling.h"

#include <array>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/families.h"
#include "quanta/ops/detail/floating.h"
#include "quanta/ops/detail/spatial.h"
#include "quanta/ops/pooling/cpu_kernels.h"
#include "quanta/ops/pooling/cuda_kernels.h"
#include "quanta/ops/pooling/families.h"
#include "quanta/ops/pooling/gradient.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/operation.h"

namespace quanta {

std::span<const std::string_view> enumerators(IndexOrder) {
  static constexpr std::array<std::string_view, 2> kNames{"row_major", "column_major"};
  return kNames;
}

namespace pooling {
namespace {

using cpu::PoolAxis;
using cpu::PoolGeometry;
using cpu::PoolLayout;

constexpr std::int64_t kLimit = std::numeric_limits<std::int32_t>::max();

std::size_t rank_of(const Tensor& x) { return x.sizes().size(); }

// The number for spatial dimension d, where one may stand for all.
std::int64_t at(const Dims& numbers, std::size_t d) {
  return numbers.size() == 1 ? numbers[0] : numbers[d];
}

// One channel suits both orders; torch then takes its channels-last kernels, whose averages round
// differently at ties, but for inputs without a batch.
PoolLayout layout_of(const Tensor& x, std::size_t spatial) {
  if (rank_of(x) == spatial + 2) {
    return x.is_contiguous(MemoryFormat::ChannelsLast) ? PoolLayout::ChannelsLast
                                                       : PoolLayout::Contiguous;
  }
  const bool channels_last =
      !x.is_contiguous() && x.unsqueeze(0).is_contiguous(MemoryFormat::ChannelsLast);
  return channels_last ? PoolLayout::ChannelsLast : PoolLayout::Contiguous;
}

// Whether a dense copy would be in both orders, so that its layout_of() could be another.
bool suits_both_layouts(const Tensor& x, std::size_t spatial) {
  if (rank_of(x) == spatial + 1) return false;
  std::int64_t volume = 1;
  for (std::size_t d = 2; d < rank_of(x); ++d) volume *= x.sizes()[d];
  return x.sizes()[1] == 1 || volume == 1;
}

Tensor with_batch(const Tensor& x, std::size_t spatial) {
  return rank_of(x) == spatial + 1 ? x.unsqueeze(0) : x;
}

// Which dtypes a pooling takes.
enum class Takes : std::uint8_t {
  Floats,          // Float64 as well, for proofs of gradients
  FloatsAndCodes,  // with QUInt8 and QInt8
  Ordered,         // with QInt32, UInt8 and Int8 too
};

void check_input(std::string_view op, const Tensor& x, std::size_t spatial, Takes takes) {
  const bool is_plain =
      x.defined() &&
      (x.dtype() == DType::Float64 || detail::is_float_of_cuda(x) ||
       (takes == Takes::Ordered && (x.dtype() == DType::UInt8 || x.dtype() == DType::Int8)));
  if (takes == Takes::Floats) {
    detail::check_floats(op, "x", x);
  } else if (!is_plain) {
    detail::check_float_or_quantized(op, x, takes == Takes::Ordered);
  }
  QUANTA_CHECK(rank_of(x) == spatial + 1 || rank_of(x) == spatial + 2,
               "{}: x: expected {} or {} dimensions, got {}", op, spatial + 1, spatial + 2,
               x.sizes());
  for (std::size_t d = rank_of(x) - spatial - 1; d < rank_of(x); ++d) {
    QUANTA_CHECK(x.sizes()[d] > 0, "{}: x: expected channels and spatial sizes > 0, got {}", op,
                 x.sizes());
  }
}

void check_count(std::string_view op, std::string_view argument, const Dims& values,
                 std::size_t spatial) {
  QUANTA_CHECK(values.size() == spatial || values.size() == 1,
               "{}: {}: expected 1 or {} numbers, got {}", op, argument, spatial, values);
}

// What both kinds of windows that slide are made of.
struct Windows {
  const Dims& kernel_size;
  const Dims& stride;
  const Dims& padding;
  const Dims& padding_end;  // empty: as padding
  const Dims& dilation;
  bool ceil_mode;

  void check(std::string_view op, std::size_t spatial) const {
    check_count(op, "kernel_size", kernel_size, spatial);
    if (!stride.empty()) check_count(op, "stride", stride, spatial);
    check_count(op, "padding", padding, spatial);
    if (!padding_end.empty()) check_count(op, "padding_end", padding_end, spatial);
    check_count(op, "dilation", dilation, spatial);
    // Products of two of these numbers (three kernel sizes) stay within 63 bits.
    const std::int64_t kernel_limit = spatial == 3 ? std::int64_t{1} << 20 : kLimit;
    const auto all = [&](const Dims& values) {
      return detail::per_dimension(op, "", values, spatial);
    };
    for (std::size_t d = 0; d < spatial; ++d) {
      const PoolAxis axis = axis_of(1, d);
      QUANTA_CHECK(axis.kernel >= 1 && axis.kernel <= kernel_limit,
                   "{}: kernel_size: expected 1..{}, got {}", op, kernel_limit, all(kernel_size));
      QUANTA_CHECK(axis.stride >= 1 && axis.stride <= kLimit, "{}: stride: expected 1..{}, got {}",
                   op, kLimit, all(stride));
      QUANTA_CHECK(axis.dilation >= 1 && axis.dilation <= kLimit,
                   "{}: dilation: expected 1..{}, got {}", op, kLimit, all(dilation));
      if (padding_end.empty()) {
        QUANTA_CHECK(axis.padding >= 0 && axis.padding <= axis.kernel / 2,
                     "{}: padding: expected 0 to half of kernel_size {}, got {}", op,
                     all(kernel_size), all(padding));
        continue;
      }
      // A longer one would have windows that see nothing else.
      const std::int64_t reach = axis.dilation * (axis.kernel - 1);
      QUANTA_CHECK(axis.padding >= 0 && axis.padding <= reach,
                   "{}: padding: expected 0..{}, got {}", op, reach, all(padding));
      QUANTA_CHECK(axis.padding_end >= 0 && axis.padding_end <= reach,
                   "{}: padding_end: expected 0..{}, got {}", op, reach, all(padding_end));
    }
  }

  void set(PoolAxis& axis, std::size_t d) const {
    axis = axis_of(axis.input, d);
    const std::int64_t span =
        axis.input + axis.padding + axis.padding_end - axis.dilation * (axis.kernel - 1) - 1;
    // With ceil_mode a window that is a little longer than all there is counts, as in torch.
    const std::int64_t last = span + (ceil_mode ? axis.stride - 1 : 0);
    axis.output = last < 0 ? 0 : last / axis.stride + 1;
    // With ceil_mode the last window still has to start inside the input or its left padding.
    if (ceil_mode && (axis.output - 1) * axis.stride >= axis.input + axis.padding) --axis.output;
  }

 private:
  PoolAxis axis_of(std::int64_t input, std::size_t d) const {
    PoolAxis axis;
    axis.input = input;
    axis.kernel = at(kernel_size, d);
    axis.stride = stride.empty() ? axis.kernel : at(stride, d);
    axis.padding = at(padding, d);
    axis.padding_end = padding_end.empty() ? axis.padding : at(padding_end, d);
    axis.dilation = at(dilation, d);
    return axis;
  }
};

// Windows that follow from the sizes.
struct AdaptiveWindows {
  const Dims& output_size;

  void check(std::string_view op, std::size_t spatial) const {
    check_count(op, "output_size", output_size, spatial);
    for (std::size_t d = 0; d < spatial; ++d) {
      const std::int64_t size = at(output_size, d);
      QUANTA_CHECK(size == -1 || (size >= 1 && size <= kLimit),
                   "{}: output_size: expected 1..{} or -1 for the input's size, got {}", op, kLimit,
                   detail::per_dimension(op, "", output_size, spatial));
    }
  }

  void set(PoolAxis& axis, std::size_t d) const {
    axis.adaptive = true;
    axis.output = at(output_size, d) == -1 ? axis.input : at(output_size, d);
  }
};

/// What all poolings share. `Derived` has kNames for one to three spatial dimensions, kTakes,
/// windows(), and pool() and back() for the calculation.
template <typename Derived>
struct Pool : Op<Derived> {
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  const std::size_t spatial;

  explicit Pool(std::size_t dimensions) : spatial(dimensions) {}

  std::string_view name() const noexcept override { return Derived::kNames[spatial - 1]; }

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    check_input(name(), x, spatial, Derived::kTakes);
    derived().check(name(), spatial);
    const PoolLayout layout = layout_of(x, spatial);
    if (layout == PoolLayout::Contiguous && !suits_both_layouts(x, spatial)) {
      out.arrange(0, MemoryFormat::Contiguous);
    }
    const PoolGeometry pool = geometry(x.sizes(), layout);
    Dims sizes{pool.batch, pool.channels};
    for (std::size_t slot = 3 - spatial; slot < 3; ++slot) {
      const PoolAxis& axis = pool.axes[slot];
      QUANTA_CHECK(
          axis.output >= 1,
          "{}: x: expected at least one window of {} (dilation {}, padding {}), got size {}",
          name(), axis.kernel, axis.dilation, axis.padding, axis.input);
      sizes.push_back(axis.output);
    }
    Dims strides =
        contiguous_strides(sizes, layout == PoolLayout::ChannelsLast ? MemoryFormat::ChannelsLast
                                                                     : MemoryFormat::Contiguous);
    if (rank_of(x) == spatial + 1) {
      sizes.erase(0);
      strides.erase(0);
    }
    out.add_like(x, sizes, strides);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const PoolLayout layout = layout_of(in[0], spatial);
    const Tensor x = layout == PoolLayout::Contiguous ? in[0].contiguous() : in[0];
    return derived().pool(geometry(x.sizes(), layout), x, out[0]);
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const PoolLayout layout = layout_of(in[0], spatial);
    const Tensor x = layout == PoolLayout::Contiguous ? in[0].contiguous() : in[0];
    cuda::PoolParams params;
    params.geometry = geometry(x.sizes(), layout);
    params.x = x.device_ptr();
    params.y = out[0].device_ptr();
    return derived().pool_on_cuda(params, x);
  }

  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    const Tensor result = derived().back(context);
    return {context.input_sizes(0).size() == spatial + 1 ? result.squeeze(0) : result};
  }

 protected:
  PoolGeometry geometry(const Dims& sizes, PoolLayout layout) const {
    const std::size_t first = sizes.size() - spatial;
    PoolGeometry pool;
    pool.batch = sizes.size() == spatial + 1 ? 1 : sizes[0];
    pool.channels = sizes[first - 1];
    pool.layout = layout;
    const auto windows = derived().windows();
    for (std::size_t d = 0; d < spatial; ++d) {
      PoolAxis& axis = pool.axes[3 - spatial + d];
      axis.input = sizes[first + d];
      windows.set(axis, d);
    }
    return pool;
  }

 private:
  const Derived& derived() const { return static_cast<const Derived&>(*this); }
};

// UInt8 and Int8 are compared as codes are.
DType code_type(DType dtype) {
  if (dtype == DType::UInt8) return DType::QUInt8;
  return dtype == DType::Int8 ? DType::QInt8 : dtype;
}

constexpr std::array kCudaComparable{DType::QUInt8, DType::QInt8, DType::QInt32,  DType::Float32,
                                     DType::UInt8,  DType::Int8,  DType::Float16, DType::BFloat16};

template <typename Derived>
struct MaximumPool : Pool<Derived> {
  using Pool<Derived>::Pool;
  static constexpr Takes kTakes = Takes::Ordered;

  std::string_view pool(const PoolGeometry& geometry, const Tensor& x, const Tensor& out) const {
    return cpu::max_pool(geometry, code_type(x.dtype()), x.data_ptr(), out.data_ptr());
  }
  std::string_view pool_on_cuda(cuda::PoolParams& params, const Tensor& x) const {
    params.dtype = code_type(x.dtype());
    cuda::pool_largest(x.device(), params);
    return "pool_largest";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kCudaComparable; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(1); }
  Tensor back(const autograd::BackwardContext& context) const {
    const Tensor x = context.input(0);
    return max_pool_gradient(with_batch(context.grad(), this->spatial),
                             with_batch(x, this->spatial),
                             this->geometry(x.sizes(), layout_of(x, this->spatial)));
  }
};

template <typename Derived>
struct AveragePool : Pool<Derived> {
  using Pool<Derived>::Pool;
  static constexpr Takes kTakes = Takes::FloatsAndCodes;

  std::string_view pool(const PoolGeometry& geometry, const Tensor& x, const Tensor& out) const {
    cpu::AverageRule rule = static_cast<const Derived&>(*this).rule(geometry.layout);
    if (x.is_quantized()) {
      rule.zero_point = static_cast<std::int32_t>(x.impl()->quantizer.zero_point);
    }
    return cpu::avg_pool(geometry, rule, x.dtype(), x.data_ptr(), out.data_ptr());
  }
  std::string_view pool_on_cuda(cuda::PoolParams& params, const Tensor& x) const {
    params.rule = static_cast<const Derived&>(*this).rule(params.geometry.layout);
    params.rule.zero_point = static_cast<std::int32_t>(x.impl()->quantizer.zero_point);
    params.dtype = x.dtype();
    cuda::pool_average(x.device(), params);
    return "pool_average";
  }
  std::span<const DType> cuda_dtypes() const noexcept override {
    return detail::kCudaFloatQ8Dtypes;
  }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::of(0); }
  Tensor back(const autograd::BackwardContext& context) const {
    const PoolLayout layout = layout_of(context.grad(), this->spatial);
    Dims sizes = context.input_sizes(0);
    const PoolGeometry geometry = this->geometry(sizes, layout);
    if (sizes.size() == this->spatial + 1) sizes.insert(0, 1);
    return avg_pool_gradient(with_batch(context.grad(), this->spatial), sizes, geometry,
                             static_cast<const Derived&>(*this).rule(layout));
  }
};

struct MaxPool final : MaximumPool<MaxPool> {
  static constexpr std::array<std::string_view, 3> kNames{"max_pool1d", "max_pool2d", "max_pool3d"};
  MaxPoolOptions options;

  MaxPool(std::size_t dimensions, const MaxPoolOptions& given)
      : MaximumPool(dimensions), options(given) {}
  Windows windows() const {
    return {options.kernel_size, options.stride,   options.padding,
            options.padding_end, options.dilation, options.ceil_mode};
  }
  void check(std::string_view op, std::size_t dimensions) const { windows().check(op, dimensions); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<MaxPool, &MaxPool::options, &MaxPoolOptions::kernel_size>("kernel_size"),
        attribute<MaxPool, &MaxPool::options, &MaxPoolOptions::stride>("stride"),
        attribute<MaxPool, &MaxPool::options, &MaxPoolOptions::padding>("padding"),
        attribute<MaxPool, &MaxPool::options, &MaxPoolOptions::dilation>("dilation"),
        attribute<MaxPool, &MaxPool::options, &MaxPoolOptions::ceil_mode>("ceil_mode"),
        attribute<MaxPool, &MaxPool::options, &MaxPoolOptions::padding_end>("padding_end")};
    return kTable;
  }
};

struct AvgPool final : AveragePool<AvgPool> {
  static constexpr std::array<std::string_view, 3> kNames{"avg_pool1d", "avg_pool2d", "avg_pool3d"};
  AvgPoolOptions options;

  AvgPool(std::size_t dimensions, const AvgPoolOptions& given)
      : AveragePool(dimensions), options(given) {}
  Windows windows() const {
    return {options.kernel_size, options.stride,   options.padding,
            options.padding_end, options.dilation, options.ceil_mode};
  }
  void check(std::string_view op, std::size_t dimensions) const {
    windows().check(op, dimensions);
    QUANTA_CHECK(options.divisor_override != 0,
                 "{}: divisor_override: expected another number, got 0", op);
  }
  cpu::AverageRule rule(PoolLayout layout) const {
    cpu::AverageRule rule;
    rule.divisor = options.count_include_pad ? cpu::AverageDivisor::PaddedWindow
                                             : cpu::AverageDivisor::ValidWindow;
    if (options.divisor_override) {
      rule.divisor = cpu::AverageDivisor::Fixed;
      rule.fixed_divisor = *options.divisor_override;
    }
    // torch's contiguous 1-d and 2-d kernels are the ones that add the zero point first.
    rule.rounding = spatial < 3 && layout == PoolLayout::Contiguous
                        ? cpu::AverageRounding::ZeroPointFirst
                        : cpu::AverageRounding::Centred;
    return rule;
  }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        attribute<AvgPool, &AvgPool::options, &AvgPoolOptions::kernel_size>("kernel_size"),
        attribute<AvgPool, &AvgPool::options, &AvgPoolOptions::stride>("stride"),
        attribute<AvgPool, &AvgPool::options, &AvgPoolOptions::padding>("padding"),
        attribute<AvgPool, &AvgPool::options, &AvgPoolOptions::ceil_mode>("ceil_mode"),
        attribute<AvgPool, &AvgPool::options, &AvgPoolOptions::count_include_pad>(
            "count_include_pad"),
        attribute<AvgPool, &AvgPool::options, &AvgPoolOptions::divisor_override>(
            "divisor_override"),
        attribute<AvgPool, &AvgPool::options, &AvgPoolOptions::dilation>("dilation"),
        attribute<AvgPool, &AvgPool::options, &AvgPoolOptions::padding_end>("padding_end")};
    return kTable;
  }
};

/// The adaptive forms of both.
template <typename Derived, typename Base>
struct Adaptive : Base {
  Dims output_size;

  Adaptive(std::size_t dimensions, const Dims& size) : Base(dimensions), output_size(size) {}
  AdaptiveWindows windows() const { return {output_size}; }
  void check(std::string_view op, std::size_t dimensions) const { windows().check(op, dimensions); }
  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{attribute<Derived, &Derived::output_size>("output_size")};
    return kTable;
  }
};

struct AdaptiveMaxPool final : Adaptive<AdaptiveMaxPool, MaximumPool<AdaptiveMaxPool>> {
  using Adaptive::Adaptive;
  static constexpr std::array<std::string_view, 3> kNames{
      "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d"};
};

struct AdaptiveAvgPool final : Adaptive<AdaptiveAvgPool, AveragePool<AdaptiveAvgPool>> {
  using Adaptive::Adaptive;
  static constexpr std::array<std::string_view, 3> kNames{
      "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d"};

  cpu::AverageRule rule(PoolLayout layout) const {
    cpu::AverageRule rule;
    rule.divisor = cpu::AverageDivisor::ValidWindow;
    rule.rounding = layout == PoolLayout::Contiguous ? cpu::AverageRounding::RawCodes
                                                     : cpu::AverageRounding::Centred;
    return rule;
  }
};

/// Poolings that are calculated in contiguous order, whatever the input's.
template <typename Derived>
struct PlainPool : Op<Derived> {
  static constexpr ArgumentCount kArguments{1};
  std::int64_t spatial = 2;

  void infer(const Arguments& in, Results& out) const override {
    const Derived& self = static_cast<const Derived&>(*this);
    QUANTA_CHECK(spatial >= 1 && spatial <= 3, "{}: spatial: expected 1, 2 or 3, got {}",
                 Derived::kName, spatial);
    check_input(Derived::kName, in[0], rank(), Derived::kTakes);
    self.check();
    out.arrange(0, MemoryFormat::Contiguous);
    const PoolGeometry pool = geometry(in[0].sizes());
    Dims sizes = in[0].sizes();
    for (std::size_t d = 0; d < rank(); ++d) {
      const PoolAxis& axis = pool.axes[3 - rank() + d];
      QUANTA_CHECK(axis.output >= 1, "{}: x: expected at least one window of {}, got size {}",
                   Derived::kName, axis.kernel, axis.input);
      sizes[sizes.size() - rank() + d] = axis.output;
    }
    out.add(sizes, self.result_dtype(in[0].dtype()));
  }

 protected:
  std::size_t rank() const { return static_cast<std::size_t>(spatial); }
  PoolGeometry geometry(const Dims& sizes) const {
    PoolGeometry pool;
    pool.batch = sizes.size() == rank() + 1 ? 1 : sizes[0];
    pool.channels = sizes[sizes.size() - rank() - 1];
    const Windows windows = static_cast<const Derived&>(*this).windows();
    for (std::size_t d = 0; d < rank(); ++d) {
      PoolAxis& axis = pool.axes[3 - rank() + d];
      axis.input = sizes[sizes.size() - rank() + d];
      windows.set(axis, d);
    }
    return pool;
  }
};

struct MaxPoolIndices final : PlainPool<MaxPoolIndices> {
  static constexpr std::string_view kName = "max_pool_indices";
  static constexpr Takes kTakes = Takes::Ordered;
  MaxPoolOptions options;
  IndexOrder order = IndexOrder::RowMajor;

  Windows windows() const {
    return {options.kernel_size, options.stride,   options.padding,
            options.padding_end, options.dilation, options.ceil_mode};
  }
  void check() const { windows().check(kName, rank()); }
  DType result_dtype(DType) const { return DType::Int64; }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return cpu::max_pool_indices(geometry(in[0].sizes()), in[0].dtype(),
                                 order == IndexOrder::ColumnMajor, in[0].data_ptr(),
                                 out[0].mutable_data<std::int64_t>());
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::FindLargestParams params;
    params.pool.geometry = geometry(in[0].sizes());
    params.pool.dtype = code_type(in[0].dtype());
    params.pool.x = in[0].device_ptr();
    params.pool.y = out[0].device_ptr();
    params.column_major = order == IndexOrder::ColumnMajor;
    cuda::find_largest(in[0].device(), params);
    return "find_largest";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return kCudaComparable; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = MaxPoolIndices;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &MaxPoolOptions::kernel_size>("kernel_size"),
        attribute<Self, &Self::options, &MaxPoolOptions::stride>("stride"),
        attribute<Self, &Self::options, &MaxPoolOptions::padding>("padding"),
        attribute<Self, &Self::options, &MaxPoolOptions::dilation>("dilation"),
        attribute<Self, &Self::options, &MaxPoolOptions::ceil_mode>("ceil_mode"),
        attribute<Self, &Self::options, &MaxPoolOptions::padding_end>("padding_end"),
        attribute<Self, &Self::order>("order"),
        attribute<Self, &Self::spatial>("spatial")};
    return kTable;
  }
};

struct LpPool final : PlainPool<LpPool> {
  static constexpr std::string_view kName = "lp_pool";
  static constexpr Takes kTakes = Takes::Floats;
  LpPoolOptions options;

  Windows windows() const {
    return {options.kernel_size, options.stride,   options.padding,
            options.padding_end, options.dilation, options.ceil_mode};
  }
  void check() const {
    windows().check(kName, rank());
    QUANTA_CHECK(options.p > 0.0 && options.p < std::numeric_limits<double>::infinity(),
                 "{}: p: expected a finite number > 0, got {}", kName, options.p);
  }
  DType result_dtype(DType dtype) const { return dtype; }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return cpu::lp_pool(geometry(in[0].sizes()), options.p, in[0].dtype(), in[0].data_ptr(),
                        out[0].data_ptr());
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::PoolNormParams params;
    params.pool.geometry = geometry(in[0].sizes());
    params.pool.dtype = in[0].dtype();
    params.pool.x = in[0].device_ptr();
    params.pool.y = out[0].device_ptr();
    params.p = options.p;
    cuda::pool_norm(in[0].device(), params);
    return "pool_norm";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloats; }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = LpPool;
    static constexpr std::array kTable{
        attribute<Self, &Self::options, &LpPoolOptions::kernel_size>("kernel_size"),
        attribute<Self, &Self::options, &LpPoolOptions::stride>("stride"),
        attribute<Self, &Self::options, &LpPoolOptions::padding>("padding"),
        attribute<Self, &Self::options, &LpPoolOptions::dilation>("dilation"),
        attribute<Self, &Self::options, &LpPoolOptions::ceil_mode>("ceil_mode"),
        attribute<Self, &Self::options, &LpPoolOptions::padding_end>("padding_end"),
        attribute<Self, &Self::options, &LpPoolOptions::p>("p"),
        attribute<Self, &Self::spatial>("spatial")};
    return kTable;
  }
};

constexpr std::string_view kHeader = "quanta/ops/pooling.h";

template <typename Kind, std::size_t kSpatial>
Sample sample(DType dtype) {
  Dims sizes{2, 3, 6, 5, 5};
  sizes.resize(kSpatial + 2);
  const std::vector<Tensor> inputs{sample_tensor(sizes, dtype)};
  if constexpr (requires(Kind kind) { kind.options; }) {
    decltype(Kind::options) options;
    options.kernel_size = {3};
    options.stride = {2};
    options.padding = {1};
    return sample_call(Kind(kSpatial, options), inputs);
  } else {
    // Windows of three: means of an odd number have no ties, which layouts round differently.
    return sample_call(Kind(kSpatial, {2}), inputs);
  }
}

constexpr std::array kComparable{DType::Float32, DType::Float64, DType::QUInt8, DType::QInt8,
                                 DType::QInt32,  DType::UInt8,   DType::Int8};

template <typename Kind>
void add(Catalogue& catalogue) {
  const auto dtypes = Kind::kTakes == Takes::Ordered ? std::span<const DType>(kComparable)
                                                     : std::span<const DType>(dtypes::kFloatsQ8);
  constexpr std::array<SampleFunction, 3> kSamples{sample<Kind, 1>, sample<Kind, 2>,
                                                   sample<Kind, 3>};
  for (std::size_t i = 0; i < kSamples.size(); ++i) {
    catalogue.add({.name = Kind::kNames[i], .header = kHeader, .dtypes = dtypes}, kSamples[i]);
  }
}

}  // namespace
}  // namespace pooling

using namespace pooling;

Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options) {
  return run(MaxPool(1, options), x);
}
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options) {
  return run(MaxPool(2, options), x);
}
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options) {
  return run(MaxPool(3, options), x);
}

Tensor max_pool_indices(const Tensor& x, const MaxPoolOptions& options, std::int64_t spatial,
                        IndexOrder order) {
  MaxPoolIndices operation;
  operation.spatial = spatial;
  operation.options = options;
  operation.order = order;
  return run(operation, x);
}

Tensor lp_pool(const Tensor& x, const LpPoolOptions& options, std::int64_t spatial) {
  LpPool operation;
  operation.spatial = spatial;
  operation.options = options;
  return run(operation, x);
}

Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options) {
  return run(AvgPool(1, options), x);
}
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options) {
  return run(AvgPool(2, options), x);
}
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options) {
  return run(AvgPool(3, options), x);
}

Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output_size) {
  return run(AdaptiveMaxPool(1, output_size), x);
}
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output_size) {
  return run(AdaptiveMaxPool(2, output_size), x);
}
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output_size) {
  return run(AdaptiveMaxPool(3, output_size), x);
}

Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size) {
  return run(AdaptiveAvgPool(1, output_size), x);
}
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size) {
  return run(AdaptiveAvgPool(2, output_size), x);
}
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size) {
  return run(AdaptiveAvgPool(3, output_size), x);
}

void detail::add_pooling(Catalogue& catalogue) {
  pooling::add_mean_of_codes(catalogue);
  add<MaxPool>(catalogue);
  add<AvgPool>(catalogue);
  add<AdaptiveMaxPool>(catalogue);
  add<AdaptiveAvgPool>(catalogue);
  catalogue.add({.name = MaxPoolIndices::kName, .header = kHeader, .dtypes = kComparable},
                [](DType dtype) {
                  MaxPoolIndices pool;
                  pool.options = {.kernel_size = {3}, .stride = {2}, .padding = {1}};
                  return sample_call(std::move(pool), {sample_tensor({2, 3, 6, 5}, dtype)});
                });
  catalogue.add({.name = LpPool::kName, .header = kHeader, .dtypes = dtypes::kFloats},
                [](DType dtype) {
                  LpPool pool;
                  pool.options = {.kernel_size = {3}, .stride = {2}, .padding = {1}, .p = 3.0};
                  return sample_call(std::move(pool), {sample_tensor({2, 3, 6, 5}, dtype)});
                });
}

}  // namespace quanta
