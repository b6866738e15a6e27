#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/lookup.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cuda/codes.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/quantize_linear.h"
#include "quanta/ops/quantize_linear/cuda_kernels.h"
#include "quanta/ops/quantize_linear/families.h"
#include "quanta/runtime/check.h"

// Functions of one code as tables of 256 answers.

namespace quanta {
namespace linear_quantization {
namespace {

void check_codes(std::string_view op, const Tensor& x, Results& out) {
  require_tensor(op, "x", x, {DType::QUInt8});
  QUANTA_CHECK(!is_per_channel(x.impl()->quantizer.scheme),
               "{}: x: expected a tensor quantized per tensor, got per channel", op);
  out.arrange(0, x.suggested_format());
}

struct MapCodes final : Op<MapCodes> {
  static constexpr std::string_view kName = "quantized::map_codes";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  std::shared_ptr<const ByteTable> table;
  double scale = 1.0;
  std::int64_t zero_point = 0;

  MapCodes() = default;
  MapCodes(std::shared_ptr<const ByteTable> answers, double scale_out, std::int64_t zero_point_out)
      : table(std::move(answers)), scale(scale_out), zero_point(zero_point_out) {}

  void infer(const Arguments& in, Results& out) const override {
    QUANTA_CHECK(table != nullptr, "{}: table: expected one, got none", kName);
    check_codes(kName, in[0], out);
    const Quantizer quantizer = Quantizer::per_tensor(scale, zero_point);
    check_quantizer(kName, quantizer, DType::QUInt8, in[0].sizes());
    out.add(in[0].sizes(), DType::QUInt8, quantizer, in[0].suggested_format());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    cpu::parallel_lookup(static_cast<const std::uint8_t*>(in[0].data_ptr()),
                         static_cast<std::uint8_t*>(out[0].data_ptr()), in[0].numel(), *table);
    return "lookup";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::look_up(in[0], out[0], *table);
    return "look_up_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQUInt8; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  PlanUse plan_use(const Arguments&, std::span<const Tensor>) const override {
    return {.in_place = true, .table = table};
  }
  std::shared_ptr<const Operation> with_table(
      std::shared_ptr<const ByteTable> other) const override {
    return std::make_shared<MapCodes>(std::move(other), scale, zero_point);
  }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = MapCodes;
    static constexpr std::array kTable{
        read_only_attribute<Self, [](const Self& op) { return op.table; }>("table"),
        attribute<Self, &Self::scale>("scale"), attribute<Self, &Self::zero_point>("zero_point")};
    return kTable;
  }
};

struct MapCodesToFloat final : Op<MapCodesToFloat> {
  static constexpr std::string_view kName = "quantized::map_codes_to_float";
  static constexpr ArgumentCount kArguments{1};
  static constexpr bool kWorksByRows = true;
  std::shared_ptr<const FloatTable> table;

  MapCodesToFloat() = default;
  explicit MapCodesToFloat(std::shared_ptr<const FloatTable> answers) : table(std::move(answers)) {}

  void infer(const Arguments& in, Results& out) const override {
    QUANTA_CHECK(table != nullptr, "{}: table: expected one, got none", kName);
    check_codes(kName, in[0], out);
    out.add(in[0].sizes(), DType::Float32, in[0].suggested_format());
  }
  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto* src = static_cast<const std::uint8_t*>(in[0].data_ptr());
    auto* dst = static_cast<float*>(out[0].data_ptr());
    cpu::parallel_elements(in[0].numel(), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) dst[i] = (*table)[src[i]];
    });
    return "lookup";
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    cuda::MapToFloatParams params;
    params.count = in[0].numel();
    params.from = reinterpret_cast<const std::uint8_t*>(in[0].device_ptr());
    params.to = reinterpret_cast<float*>(out[0].device_ptr());
    std::ranges::copy(*table, params.table);
    cuda::map_codes_to_floats(out[0].device(), params);
    return "map_codes_to_floats";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kQUInt8; }
  GradientUse gradient_use(std::uint64_t) const override { return GradientUse::none(); }
  static std::span<const AttributeInfo> attribute_table() {
    using Self = MapCodesToFloat;
    static constexpr std::array kTable{
        read_only_attribute<Self, [](const Self& op) { return op.table; }>("table")};
    return kTable;
  }
};

std::shared_ptr<const ByteTable> turned_round() {
  auto table = std::make_shared<ByteTable>();
  for (std::size_t i = 0; i < table->size(); ++i) (*table)[i] = static_cast<std::uint8_t>(255 - i);
  return table;
}

std::shared_ptr<const FloatTable> halves() {
  auto table = std::make_shared<FloatTable>();
  for (std::size_t i = 0; i < table->size(); ++i) (*table)[i] = 0.5F * static_cast<float>(i);
  return table;
}

}  // namespace

void add_tables(Catalogue& catalogue) {
  static constexpr std::string_view kHeader = "quanta/ops/quantize_linear.h";
  catalogue.add(
      {.name = MapCodes::kName, .header = kHeader, .dtypes = dtypes::kQUInt8}, [](DType dtype) {
        return sample_call(MapCodes(turned_round(), 0.04, 9), {sample_tensor({2, 3, 5, 4}, dtype)});
      });
  catalogue.add(
      {.name = MapCodesToFloat::kName, .header = kHeader, .dtypes = dtypes::kQUInt8},
      [](DType dtype) {
        return sample_call(MapCodesToFloat(halves()), {sample_tensor({2, 3, 5, 4}, dtype)});
      });
}

}  // namespace linear_quantization

namespace quantized {

using linear_quantization::MapCodes;
using linear_quantization::MapCodesToFloat;

QTensor map_codes(const QTensor& x, const ByteTable& table, double scale, std::int64_t zero_point) {
  return QTensor(run(MapCodes(std::make_shared<ByteTable>(table), scale, zero_point), x));
}

Tensor map_codes_to_float(const QTensor& x, const FloatTable& table) {
  return run(MapCodesToFloat(std::make_shared<FloatTable>(table)), x);
}

std::shared_ptr<const Operation> map_codes_operation(std::shared_ptr<const ByteTable> table,
                                                     double scale, std::int64_t zero_point) {
  return std::make_shared<MapCodes>(std::move(table), scale, zero_point);
}

std::shared_ptr<const Operation> map_codes_to_float_operation(
    std::shared_ptr<const FloatTable> table) {
  return std::make_shared<MapCodesToFloat>(std::move(table));
}

}  // namespace quantized
}  // namespace quanta
