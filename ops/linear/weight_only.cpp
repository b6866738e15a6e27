#include "quanta/ops/linear_weight_only.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "quanta/ops/detail/borrowed.h"
#include "quanta/ops/detail/cuda_float_weight.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/linear/cpu_weight_only.h"
#include "quanta/ops/linear/rows.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/range_qparams.h"
#include "quanta/runtime/operation.h"

namespace quanta {
namespace {

constexpr std::string_view kPacked = "weight_only";

IntRange code_range(const WeightOnlyOptions& options) {
  const std::int64_t codes = std::int64_t{1} << options.bits;
  return options.symmetric ? IntRange{-codes / 2, codes / 2 - 1} : IntRange{0, codes - 1};
}

/// What is taken off unsigned codes and zero points: kernels know signed ones only.
int centre(const WeightOnlyOptions& options) {
  return options.symmetric ? 0 : 1 << (options.bits - 1);
}

std::int64_t columns_of_group(std::string_view op, std::int64_t in_features,
                              const WeightOnlyOptions& options) {
  QUANTA_CHECK(options.bits == 8 || options.bits == 4, "{}: bits: expected 8 or 4, got {}", op,
               options.bits);
  const std::int64_t group = options.group_size;
  if (group == 0) return in_features;
  QUANTA_CHECK(group >= 16 && std::has_single_bit(static_cast<std::uint64_t>(group)),
               "{}: group_size: expected 0 (one group a channel) or a power of two >= 16, got {}",
               op, group);
  QUANTA_CHECK(in_features % group == 0,
               "{}: group_size: expected one that divides the {} input features, got {}", op,
               in_features, group);
  return group;
}

void check_matrix(std::string_view op, std::string_view argument, const Tensor& x, DType dtype) {
  QUANTA_CHECK(x.defined(), "{}: {}: expected a tensor, got an undefined one", op, argument);
  QUANTA_CHECK(x.dtype() == dtype, "{}: {}: expected {}, got {}", op, argument, dtype, x.dtype());
  QUANTA_CHECK(x.dim() == 2 && x.numel() > 0, "{}: {}: expected two sizes of 1 or more, got {}", op,
               argument, x.sizes());
}

void check_sizes(std::string_view op, std::string_view argument, const Tensor& x, DType dtype,
                 const Dims& sizes) {
  check_matrix(op, argument, x, dtype);
  QUANTA_CHECK(x.sizes() == sizes, "{}: {}: expected sizes {}, got {}", op, argument, sizes,
               x.sizes());
}

/// A copy that nobody else can write to, or undefined.
Tensor own_bias(std::string_view op, const Tensor& bias, std::int64_t out_features) {
  if (!bias.defined()) return {};
  QUANTA_CHECK(bias.dtype() == DType::Float32 && bias.dim() == 1 && bias.sizes()[0] == out_features,
               "{}: bias: expected Float32 [{}], got {} {}", op, out_features, bias.dtype(),
               bias.sizes());
  return bias.clone(MemoryFormat::Contiguous);
}

/// Integers of x, checked against a range, with `offset` taken off.
template <typename T>
std::vector<std::int8_t> centred(std::string_view argument, const Tensor& x, IntRange range,
                                 int offset) {
  const Tensor dense = x.contiguous();
  const std::span<const T> values(dense.data<T>(), static_cast<std::size_t>(dense.numel()));
  std::vector<std::int8_t> result(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    QUANTA_CHECK(values[i] >= range.min && values[i] <= range.max,
                 "{}: {}: expected {}..{}, got {} at element {}", kPacked, argument, range.min,
                 range.max, static_cast<int>(values[i]), i);
    result[i] = static_cast<std::int8_t>(values[i] - offset);
  }
  return result;
}

Tensor uncentred(const std::vector<std::int8_t>& values, const Dims& sizes, DType dtype,
                 int offset) {
  Tensor result = Tensor::empty(sizes, dtype);
  // Signed and unsigned bytes of the same code have the same bits.
  auto* bytes = static_cast<std::uint8_t*>(result.data_ptr());
  for (std::size_t i = 0; i < values.size(); ++i) {
    bytes[i] = static_cast<std::uint8_t>(values[i] + offset);
  }
  return result;
}

DType code_dtype(const WeightOnlyOptions& options) {
  return options.symmetric ? DType::Int8 : DType::UInt8;
}

}  // namespace

struct WeightOnlyPackedParams::Impl {
  Impl(const WeightOnlyOptions& given, cpu::WeightOnlyLinear packed)
      : options(given), kernel(std::move(packed)) {}

  WeightOnlyOptions options;
  cpu::WeightOnlyLinear kernel;
  mutable detail::CudaFloatWeight on_cuda{};
};

WeightOnlyPackedParams::WeightOnlyPackedParams(const Tensor& codes, const Tensor& scales,
                                               const Tensor& zero_points, const Tensor& bias,
                                               const WeightOnlyOptions& options) {
  check_matrix(kPacked, "codes", codes, code_dtype(options));
  const std::int64_t rows = codes.sizes()[0];
  const std::int64_t columns = codes.sizes()[1];
  cpu::WeightOnlyCodes weight{.bits = options.bits, .out_features = rows, .in_features = columns};
  weight.group = columns_of_group(kPacked, columns, options);
  const Dims group_sizes{rows, columns / weight.group};
  const IntRange range = code_range(options);
  const int offset = centre(options);

  check_sizes(kPacked, "scales", scales, DType::Float32, group_sizes);
  weight.scales = scales.to_float_vector();
  for (std::size_t i = 0; i < weight.scales.size(); ++i) {
    QUANTA_CHECK(std::isfinite(weight.scales[i]) && weight.scales[i] > 0.0F,
                 "{}: scales: expected finite numbers > 0, got {} at element {}", kPacked,
                 weight.scales[i], i);
  }
  if (options.symmetric) {
    QUANTA_CHECK(!zero_points.defined(),
                 "{}: zero_points: expected none for symmetric codes, got {} {}", kPacked,
                 zero_points.dtype(), zero_points.sizes());
    weight.codes = centred<std::int8_t>("codes", codes, range, offset);
  } else {
    check_sizes(kPacked, "zero_points", zero_points, DType::UInt8, group_sizes);
    weight.codes = centred<std::uint8_t>("codes", codes, range, offset);
    weight.zero_points = centred<std::uint8_t>("zero_points", zero_points, range, offset);
  }
  impl_ = std::make_shared<const Impl>(
      options, cpu::WeightOnlyLinear(weight, own_bias(kPacked, bias, rows)));
}

WeightOnlyPackedParams WeightOnlyPackedParams::from_bytes(const Tensor& bytes, const Tensor& scales,
                                                          const Tensor& zero_points,
                                                          const Tensor& bias,
                                                          std::int64_t in_features,
                                                          const WeightOnlyOptions& options) {
  QUANTA_CHECK(options.bits == 8 || options.bits == 4, "{}: bits: expected 8 or 4, got {}", kPacked,
               options.bits);
  check_matrix(kPacked, "bytes", bytes, DType::UInt8);
  const std::int64_t rows = bytes.sizes()[0];
  const std::int64_t row_bytes = bytes.sizes()[1];
  QUANTA_CHECK(
      in_features >= 1 &&
          row_bytes == (options.bits == 8 ? in_features : in_features / 2 + in_features % 2),
      "{}: bytes: expected rows of {} codes of {} bits, got sizes {}", kPacked, in_features,
      options.bits, bytes.sizes());
  if (options.bits == 8) {
    return {bytes.bit_cast(code_dtype(options)), scales, zero_points, bias, options};
  }
  const Tensor dense = bytes.contiguous();
  const auto* packed = dense.data<std::uint8_t>();
  Tensor codes = Tensor::empty({rows, in_features}, code_dtype(options));
  auto* unpacked = static_cast<std::uint8_t*>(codes.data_ptr());
  const int sign = options.symmetric ? 8 : 0;
  for (std::int64_t n = 0; n < rows; ++n) {
    for (std::int64_t k = 0; k < in_features; ++k) {
      const int code = packed[n * row_bytes + k / 2] >> (k % 2 * 4) & 15;
      unpacked[n * in_features + k] = static_cast<std::uint8_t>((code ^ sign) - sign);
    }
  }
  return {codes, scales, zero_points, bias, options};
}

const WeightOnlyPackedParams::Impl& WeightOnlyPackedParams::impl() const {
  QUANTA_CHECK(defined(), "{}: packed: expected packed parameters, got empty ones", kPacked);
  return *impl_;
}

const WeightOnlyOptions& WeightOnlyPackedParams::options() const { return impl().options; }
std::int64_t WeightOnlyPackedParams::in_features() const { return impl().kernel.in_features(); }
std::int64_t WeightOnlyPackedParams::out_features() const { return impl().kernel.out_features(); }
const Tensor& WeightOnlyPackedParams::bias() const { return impl().kernel.bias(); }
std::size_t WeightOnlyPackedParams::nbytes() const { return impl().kernel.nbytes(); }

Tensor WeightOnlyPackedParams::codes() const {
  return uncentred(impl().kernel.unpack().codes, {out_features(), in_features()},
                   code_dtype(options()), centre(options()));
}

Tensor WeightOnlyPackedParams::scales() const {
  const std::vector<float> values = impl().kernel.unpack().scales;
  return Tensor::from_values(
      values, {out_features(), static_cast<std::int64_t>(values.size()) / out_features()});
}

Tensor WeightOnlyPackedParams::zero_points() const {
  if (options().symmetric) return {};
  const std::vector<std::int8_t> values = impl().kernel.unpack().zero_points;
  return uncentred(values,
                   {out_features(), static_cast<std::int64_t>(values.size()) / out_features()},
                   DType::UInt8, centre(options()));
}

Tensor WeightOnlyPackedParams::bytes() const {
  const Tensor all = codes();
  if (options().bits == 8) return all.bit_cast(DType::UInt8);
  const auto* unpacked = static_cast<const std::uint8_t*>(all.data_ptr());
  const std::int64_t columns = in_features();
  const std::int64_t row_bytes = (columns + 1) / 2;
  Tensor packed = Tensor::zeros({out_features(), row_bytes}, DType::UInt8);
  auto* bytes = packed.mutable_data<std::uint8_t>();
  for (std::int64_t i = 0; i < all.numel(); ++i) {
    const std::int64_t k = i % columns;
    std::uint8_t& byte = bytes[i / columns * row_bytes + k / 2];
    byte = static_cast<std::uint8_t>(byte | (unpacked[i] & 15) << (k % 2 * 4));
  }
  return packed;
}

Tensor WeightOnlyPackedParams::dequantize() const {
  const cpu::WeightOnlyLinear& kernel = impl().kernel;
  Tensor result = Tensor::empty({kernel.out_features(), kernel.in_features()});
  kernel.dequantize(result.mutable_data<float>());
  return result;
}

namespace {

struct GroupQParams {
  float scale;
  std::int64_t zero_point;
};

/// As calculate_qparams of the observers chooses them.
GroupQParams choose(std::span<const float> values, const WeightOnlyOptions& options) {
  constexpr float kEps = std::numeric_limits<float>::epsilon();
  float low = 0.0F;
  float high = 0.0F;
  for (const float value : values) {
    QUANTA_CHECK(std::isfinite(value),
                 "quantize_weight_only: weight: expected finite numbers, got {}", value);
    low = std::min(low, value);
    high = std::max(high, value);
  }
  const IntRange range = code_range(options);
  if (options.symmetric) return {detail::symmetric_scale(low, high, range, kEps), 0};
  const float scale = detail::affine_scale(low, high, range, kEps);
  QUANTA_CHECK(std::isfinite(scale),
               "quantize_weight_only: weight: expected a range that float32 holds, got {}..{}", low,
               high);
  return {scale, detail::affine_zero_point(low, scale, range)};
}

}  // namespace

WeightOnlyPackedParams quantize_weight_only(const Tensor& weight, const Tensor& bias,
                                            const WeightOnlyOptions& options) {
  constexpr std::string_view kOp = "quantize_weight_only";
  check_matrix(kOp, "weight", weight, DType::Float32);
  const std::int64_t rows = weight.sizes()[0];
  const std::int64_t columns = weight.sizes()[1];
  const std::int64_t group = columns_of_group(kOp, columns, options);
  const IntRange range = code_range(options);
  const Tensor dense = weight.contiguous();
  const Tensor codes = Tensor::empty({rows, columns}, code_dtype(options));
  const Tensor scales = Tensor::empty({rows, columns / group});
  Tensor zero_points;
  if (!options.symmetric) zero_points = Tensor::empty(scales.sizes(), DType::UInt8);
  const auto* from = dense.data<float>();
  auto* to = static_cast<std::uint8_t*>(codes.data_ptr());
  auto* scale = scales.mutable_data<float>();
  for (std::int64_t g = 0; g < scales.numel(); ++g) {
    const std::span values(from + g * group, static_cast<std::size_t>(group));
    const GroupQParams qparams = choose(values, options);
    scale[g] = qparams.scale;
    if (zero_points.defined()) {
      zero_points.mutable_data<std::uint8_t>()[g] = static_cast<std::uint8_t>(qparams.zero_point);
    }
    const float inv_scale = math::inverse_scale(qparams.scale);
    for (std::size_t i = 0; i < values.size(); ++i) {
      to[g * group + static_cast<std::int64_t>(i)] = static_cast<std::uint8_t>(math::quantize(
          values[i], inv_scale, static_cast<std::int32_t>(qparams.zero_point),
          static_cast<std::int32_t>(range.min), static_cast<std::int32_t>(range.max)));
    }
  }
  return {codes, scales, zero_points, bias, options};
}

namespace linear_layers {
namespace {

struct LinearWeightOnly final : Op<LinearWeightOnly> {
  static constexpr std::string_view kName = "linear_weight_only";
  static constexpr ArgumentCount kArguments{1};
  detail::Borrowed<WeightOnlyPackedParams> packed;

  LinearWeightOnly() = default;
  explicit LinearWeightOnly(const WeightOnlyPackedParams& params) : packed(params) {}

  void infer(const Arguments& in, Results& out) const override {
    const Tensor& x = in[0];
    const cpu::WeightOnlyLinear& kernel = packed->impl().kernel;
    QUANTA_CHECK(x.defined(), "linear_weight_only: x: expected a tensor, got an undefined one");
    QUANTA_CHECK(x.dtype() == DType::Float32 || x.dtype() == DType::BFloat16,
                 "linear_weight_only: x: expected Float32 or BFloat16, got {}{}", x.dtype(),
                 x.is_quantized() ? " (is a DeQuantStub missing?)" : "");
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(output_sizes(kName, x, kernel.in_features(), kernel.out_features()), x.dtype());
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const cpu::WeightOnlyLinear& kernel = packed->impl().kernel;
    return kernel.run(in[0].numel() / kernel.in_features(), in[0].dtype(), in[0].data_ptr(),
                      out[0].data_ptr());
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const auto weight = [this] {
      const cpu::WeightOnlyLinear& kernel = packed->impl().kernel;
      cpu::WeightOnlyCodes codes = kernel.unpack();
      return detail::FloatWeight{.bits = codes.bits,
                                 .out_features = codes.out_features,
                                 .in_features = codes.in_features,
                                 .group = codes.group,
                                 .codes = std::move(codes.codes),
                                 .scales = std::move(codes.scales),
                                 .zero_points = std::move(codes.zero_points),
                                 .bias = kernel.bias()};
    };
    packed->impl().on_cuda.run(weight, false, in[0], out[0]);
    return "multiply_weights";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloatBFloat16; }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    return linear_work(in[0], out[0], packed->nbytes());
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = LinearWeightOnly;
    static constexpr std::array kTable{
        read_only_attribute<Self, [](const Self& op) { return op.packed->impl().kernel.packed(); }>(
            "packed_weight"),
        read_only_attribute<Self, [](const Self& op) { return op.packed->bias(); }>("bias"),
        read_only_attribute<Self, [](const Self& op) { return op.packed->options().bits; }>("bits"),
        read_only_attribute<Self, [](const Self& op) { return op.packed->options().group_size; }>(
            "group_size"),
        read_only_attribute<Self, [](const Self& op) { return op.packed->options().symmetric; }>(
            "symmetric")};
    return kTable;
  }
};

}  // namespace

void add_weight_only(Catalogue& catalogue) {
  catalogue.add({.name = LinearWeightOnly::kName,
                 .header = "quanta/ops/linear_weight_only.h",
                 .dtypes = dtypes::kFloatBFloat16},
                [](DType dtype) {
                  return sample_call(LinearWeightOnly(quantize_weight_only(
                                         sample_tensor({33, 32}, DType::Float32, 2),
                                         sample_tensor({33}, DType::Float32, 3),
                                         {.bits = 4, .group_size = 16, .symmetric = false})),
                                     {sample_tensor({2, 3, 32}, dtype)});
                });
}

}  // namespace linear_layers

const WeightOnlyPackedParams* weight_only_params_of(const Operation& operation) {
  const auto* linear = dynamic_cast<const linear_layers::LinearWeightOnly*>(&operation);
  return linear == nullptr ? nullptr : &*linear->packed;
}

Tensor linear_weight_only(const Tensor& x, const WeightOnlyPackedParams& packed) {
  return run(linear_layers::LinearWeightOnly(packed), x);
}

}  // namespace quanta
