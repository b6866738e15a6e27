#include "quanta/ops/linear_dynamic.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "quanta/ops/cuda/dynamic_codes.h"
#include "quanta/ops/detail/borrowed.h"
#include "quanta/ops/detail/dtypes.h"
#include "quanta/ops/detail/fusion.h"
#include "quanta/ops/detail/packed_linear.h"
#include "quanta/ops/detail/reduce_range.h"
#include "quanta/ops/linear/dynamic_fused.h"
#include "quanta/ops/linear/rows.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/memory.h"
#include "quanta/runtime/operation.h"
#include "quanta/runtime/quant_math.h"

namespace quanta {
namespace linear_layers {
namespace {

using quantized::LinearPackedParams;
using quantized::LinearPackedParamsFp16;
using quantized::ReduceRange;

const LinearPackedParams::Impl& checked_impl(std::string_view op,
                                             const LinearPackedParams& packed) {
  QUANTA_CHECK(packed.defined(),
               "{}: packed: expected packed parameters, got empty LinearPackedParams", op);
  QUANTA_CHECK(!packed.impl().kernel.weight().has_integer_bias(),
               "{}: packed: expected a Float32 bias, got an integer one", op);
  return packed.impl();
}

const LinearPackedParamsFp16::Impl& checked_impl(std::string_view op,
                                                 const LinearPackedParamsFp16& packed) {
  QUANTA_CHECK(packed.defined(),
               "{}: packed: expected packed parameters, got empty LinearPackedParamsFp16", op);
  return packed.impl();
}

/// x as dynamic layers take it: Float32 [..., K].
void check_rows(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.defined(), "{}: x: expected a tensor, got an undefined one", op);
  QUANTA_CHECK(x.dtype() == DType::Float32, "{}: x: expected Float32, got {}{}", op, x.dtype(),
               x.is_quantized() ? " (dynamic layers take float activations)" : "");
}

/// As the CPU makes them.
cuda::DynamicCodes codes_on_device(const Tensor& x, ReduceRange reduce_range) {
  return {x.device(), reinterpret_cast<const float*>(x.device_ptr()), x.numel(),
          reduce_range == ReduceRange::Yes};
}

void multiply_on_device(const cuda::DynamicCodes& codes, const LinearPackedParams& packed,
                        cuda::ProductFunction function, const float* addend, const Tensor& out) {
  const cpu::LinearInt8& kernel = packed.impl().kernel;
  packed.impl().on_cuda.run_dynamic(out.device(), kernel.weight(),
                                    out.numel() / kernel.out_features(),
                                    {.src_scale_at = codes.scale(),
                                     .src_zero_point_at = codes.zero_point(),
                                     .function = function,
                                     .addend = addend},
                                    codes.codes(), reinterpret_cast<float*>(out.device_ptr()));
}

/// What follows the product.
enum class Tail : std::uint8_t { None, ReLU, Gelu, Add };

std::span<const std::string_view> enumerators(Tail) {
  static constexpr std::array<std::string_view, 4> kNames{"None", "ReLU", "Gelu", "Add"};
  return kNames;
}

/// A FloatRange as a tensor.
const cpu::FloatRange* range_in(const Tensor& x) {
  static_assert(sizeof(cpu::FloatRange) == 2 * sizeof(float));
  return static_cast<const cpu::FloatRange*>(x.data_ptr());
}

void infer_range(std::string_view op, const Arguments& in, Results& out) {
  const Tensor& range = in[in.size() - 1];
  out.arrange(in.size() - 1, MemoryFormat::Contiguous);
  QUANTA_CHECK(range.defined() && range.dtype() == DType::Float32 && range.sizes() == Dims{2},
               "{}: range: expected Float32 [2], got {} {}", op,
               range.defined() ? to_string(range.dtype()) : "an undefined tensor",
               range.defined() ? range.sizes() : Dims());
}

/// With Tail::Add, argument 1 is added to the result. With range_given the last argument is the range
/// of x, with tells_range the last result that of the first.
struct LinearDynamic final : Op<LinearDynamic> {
  static constexpr ArgumentCount kArguments{1, 3};
  detail::Borrowed<LinearPackedParams> packed;
  ReduceRange reduce_range = ReduceRange::No;
  Tail tail = Tail::None;
  bool range_given = false;
  bool tells_range = false;

  LinearDynamic() = default;
  LinearDynamic(const LinearPackedParams& params, ReduceRange range, Tail end)
      : packed(params), reduce_range(range), tail(end) {}

  std::string_view name() const noexcept override {
    switch (tail) {
      case Tail::None:
        break;
      case Tail::ReLU:
        return "linear_relu_dynamic";
      case Tail::Gelu:
        return "linear_gelu_dynamic";
      case Tail::Add:
        return "linear_add_dynamic";
    }
    return "linear_dynamic";
  }

  ArgumentCount argument_count() const noexcept override {
    return ArgumentCount(std::size_t{1} + (tail == Tail::Add ? 1 : 0) + (range_given ? 1 : 0));
  }
  void infer(const Arguments& in, Results& out) const override {
    const cpu::LinearInt8& kernel = checked_impl(name(), *packed).kernel;
    check_rows(name(), in[0]);
    const Dims sizes = output_sizes(name(), in[0], kernel.in_features(), kernel.out_features());
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(sizes, DType::Float32);
    if (range_given) infer_range(name(), in, out);
    if (tells_range) out.add({2}, DType::Float32);
    if (tail != Tail::Add) return;
    const Tensor& addend = in[1];
    QUANTA_CHECK(addend.defined() && addend.dtype() == DType::Float32 && addend.sizes() == sizes,
                 "{}: addend: expected Float32 {}, got {} {}", name(), sizes,
                 addend.defined() ? to_string(addend.dtype()) : "an undefined tensor",
                 addend.defined() ? addend.sizes() : Dims());
    out.arrange(1, MemoryFormat::Contiguous);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    const auto* addend = tail == Tail::Add ? static_cast<const float*>(in[1].data_ptr()) : nullptr;
    const cpu::LinearDynamicTarget target{&packed->impl(), static_cast<float*>(out[0].data_ptr())};
    const cpu::LinearRanges ranges{
        range_given ? range_in(in[in.size() - 1]) : nullptr,
        tells_range ? static_cast<cpu::FloatRange*>(out[1].data_ptr()) : nullptr};
    return cpu::linear_dynamic_rows(static_cast<const float*>(in[0].data_ptr()),
                                    in[0].numel() / packed->impl().kernel.in_features(),
                                    {&target, 1}, reduce_range, {end(), addend}, ranges);
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const auto* addend =
        tail == Tail::Add ? reinterpret_cast<const float*>(in[1].device_ptr()) : nullptr;
    multiply_on_device(codes_on_device(in[0], reduce_range), *packed, cuda_end(), addend, out[0]);
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    OpWork work = linear_work(in[0], out[0], packed->weight().nbytes());
    if (tail == Tail::Add) work.bytes += static_cast<std::int64_t>(in[1].nbytes());
    return work;
  }

  std::shared_ptr<const Operation> with_next(const Operation& next,
                                             std::size_t /*argument*/) const override {
    if (tail != Tail::None || range_given || tells_range) return nullptr;
    if (next.name() == "relu") return with_tail(Tail::ReLU);
    if (next.name() == "add") return with_tail(Tail::Add);
    const auto is_erf = [&](const AttributeInfo& info) {
      return info.name == "approximate" && same_attribute(info.get(next), std::string("none"));
    };
    const std::span<const AttributeInfo> settings = next.attributes();
    const bool is_gelu =
        next.name() == "gelu" && std::any_of(settings.begin(), settings.end(), is_erf);
    return is_gelu ? with_tail(Tail::Gelu) : nullptr;
  }
  std::shared_ptr<const Operation> with_range() const override {
    auto form = std::make_shared<LinearDynamic>(*this);
    form->tells_range = true;
    return form;
  }
  std::shared_ptr<const Operation> with_range_given() const override {
    auto form = std::make_shared<LinearDynamic>(*this);
    form->range_given = true;
    return form;
  }

  /// That of the addend; rounded x has none.
  GradientUse gradient_use(std::uint64_t needed) const override {
    return (needed & 1U) != 0 ? GradientUse() : GradientUse::of(0);
  }
  std::vector<Tensor> gradient(const autograd::BackwardContext& context) const override {
    return {Tensor(), context.grad()};
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = LinearDynamic;
    static constexpr std::array kTable{
        read_only_attribute<Self, [](const Self& op) { return op.packed->weight(); }>("weight"),
        read_only_attribute<Self, [](const Self& op) { return op.packed->bias(); }>("bias"),
        attribute<Self, &Self::reduce_range>("reduce_range"),
        attribute<Self, &Self::tail>("tail"),
        read_only_attribute<Self, [](const Self& op) { return op.range_given; }>("range_given"),
        read_only_attribute<Self, [](const Self& op) { return op.tells_range; }>("tells_range")};
    return kTable;
  }

 private:
  std::shared_ptr<const Operation> with_tail(Tail end) const {
    auto form = std::make_shared<LinearDynamic>(*this);
    form->tail = end;
    return form;
  }
  cpu::GemmEnd end() const {
    return tail == Tail::ReLU   ? cpu::GemmEnd::ReLU
           : tail == Tail::Gelu ? cpu::GemmEnd::Gelu
                                : cpu::GemmEnd::None;
  }
  cuda::ProductFunction cuda_end() const {
    return tail == Tail::ReLU   ? cuda::ProductFunction::ReLU
           : tail == Tail::Gelu ? cuda::ProductFunction::Gelu
                                : cuda::ProductFunction::None;
  }
};

/// One result for each weight, with x quantized once. With range_given argument 1 is the range of x.
struct LinearEachDynamic final : Op<LinearEachDynamic> {
  static constexpr std::string_view kName = "linear_each_dynamic";
  static constexpr ArgumentCount kArguments{1, 2};
  using Weights = std::vector<LinearPackedParams>;
  std::shared_ptr<const Weights> weights;
  ReduceRange reduce_range = ReduceRange::No;
  bool range_given = false;

  LinearEachDynamic() = default;
  LinearEachDynamic(Weights given, ReduceRange range)
      : weights(std::make_shared<const Weights>(std::move(given))), reduce_range(range) {}

  void infer(const Arguments& in, Results& out) const override {
    QUANTA_CHECK(weights != nullptr && !weights->empty(),
                 "{}: packed: expected at least one weight, got none", kName);
    check_rows(kName, in[0]);
    if (range_given) infer_range(kName, in, out);
    const std::int64_t in_features = checked_impl(kName, weights->front()).kernel.in_features();
    out.arrange(0, MemoryFormat::Contiguous);
    for (const LinearPackedParams& packed : *weights) {
      const cpu::LinearInt8& kernel = checked_impl(kName, packed).kernel;
      QUANTA_CHECK(kernel.in_features() == in_features,
                   "{}: packed: expected {} features for every weight, got {}", kName, in_features,
                   kernel.in_features());
      out.add(output_sizes(kName, in[0], in_features, kernel.out_features()), DType::Float32);
    }
  }

  ArgumentCount argument_count() const noexcept override {
    return ArgumentCount(range_given ? 2 : 1);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    std::vector<cpu::LinearDynamicTarget> targets;
    for (std::size_t i = 0; i < weights->size(); ++i) {
      targets.push_back({&(*weights)[i].impl(), static_cast<float*>(out[i].data_ptr())});
    }
    return cpu::linear_dynamic_rows(static_cast<const float*>(in[0].data_ptr()),
                                    in[0].numel() / weights->front().impl().kernel.in_features(),
                                    targets, reduce_range, {},
                                    {range_given ? range_in(in[1]) : nullptr, nullptr});
  }

  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const cuda::DynamicCodes codes = codes_on_device(in[0], reduce_range);
    for (std::size_t i = 0; i < out.size(); ++i) {
      multiply_on_device(codes, (*weights)[i], cuda::ProductFunction::None, nullptr, out[i]);
    }
    return "multiply_codes";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    OpWork work;
    for (std::size_t i = 0; i < weights->size(); ++i) {
      const OpWork each = linear_work(in[0], out[i], (*weights)[i].weight().nbytes());
      work.multiply_adds += each.multiply_adds;
      work.bytes += each.bytes;
    }
    work.bytes -= static_cast<std::int64_t>((weights->size() - 1) * in[0].nbytes());
    return work;
  }

  std::shared_ptr<const Operation> with_range_given() const override {
    auto form = std::make_shared<LinearEachDynamic>(*this);
    form->range_given = true;
    return form;
  }

  static std::span<const AttributeInfo> attribute_table() {
    static constexpr std::array kTable{
        read_only_attribute<LinearEachDynamic,
                            [](const LinearEachDynamic& op) { return op.weights; }>("weights"),
        attribute<LinearEachDynamic, &LinearEachDynamic::reduce_range>("reduce_range"),
        read_only_attribute<LinearEachDynamic, [](const LinearEachDynamic& op) {
          return op.range_given;
        }>("range_given")};
    return kTable;
  }
};

struct LinearDynamicFp16 final : Op<LinearDynamicFp16> {
  static constexpr ArgumentCount kArguments{1};
  detail::Borrowed<LinearPackedParamsFp16> packed;
  Fusion fusion = Fusion::None;

  LinearDynamicFp16() = default;
  LinearDynamicFp16(const LinearPackedParamsFp16& params, Fusion fused)
      : packed(params), fusion(fused) {}

  std::string_view name() const noexcept override {
    return fusion == Fusion::ReLU ? "linear_relu_dynamic_fp16" : "linear_dynamic_fp16";
  }

  void infer(const Arguments& in, Results& out) const override {
    const LinearPackedParamsFp16::Impl& weight = checked_impl(name(), *packed);
    check_rows(name(), in[0]);
    out.arrange(0, MemoryFormat::Contiguous);
    out.add(output_sizes(name(), in[0], weight.in_features, weight.out_features), DType::Float32);
  }

  std::string_view cpu(const Arguments& in, std::span<const Tensor> out) const override {
    return cpu::linear_dynamic_fp16_rows(static_cast<const float*>(in[0].data_ptr()),
                                         in[0].numel() / packed->impl().in_features, packed->impl(),
                                         fusion, static_cast<float*>(out[0].data_ptr()));
  }
  std::string_view cuda(const Arguments& in, std::span<const Tensor> out) const override {
    const auto weight = [this] { return detail::float_weight_of(*packed); };
    packed->impl().on_cuda.run(weight, fusion == Fusion::ReLU, in[0], out[0]);
    return "multiply_weights";
  }
  std::span<const DType> cuda_dtypes() const noexcept override { return dtypes::kFloat; }

  OpWork work(const Arguments& in, std::span<const Tensor> out) const override {
    const auto items =
        static_cast<std::size_t>(packed->impl().in_features * packed->impl().out_features);
    return linear_work(in[0], out[0], 2 * items);
  }

  static std::span<const AttributeInfo> attribute_table() {
    using Self = LinearDynamicFp16;
    static constexpr std::array kTable{
        read_only_attribute<Self, [](const Self& op) { return op.packed->impl().panels; }>(
            "packed_weight"),
        read_only_attribute<Self, [](const Self& op) { return op.packed->bias(); }>("bias"),
        attribute<Self, &Self::fusion>("fusion")};
    return kTable;
  }
};

template <Tail kTail>
void add_int8(Catalogue& catalogue) {
  const auto sample = [](DType dtype) {
    const QTensor weight(sample_tensor({33, 24}, DType::QInt8, 2));
    const LinearPackedParams packed(weight, sample_tensor({33}, DType::Float32, 3));
    return sample_call(LinearDynamic(packed, ReduceRange::Yes, kTail),
                       {sample_tensor({2, 5, 24}, dtype)});
  };
  catalogue.add({.name = LinearDynamic({}, {}, kTail).name(),
                 .header = "quanta/ops/linear_dynamic.h",
                 .dtypes = dtypes::kFloat},
                sample);
}

template <Fusion kFusion>
void add_fp16(Catalogue& catalogue) {
  const auto sample = [](DType dtype) {
    const LinearPackedParamsFp16 packed(sample_tensor({33, 24}, DType::Float32, 2),
                                        sample_tensor({33}, DType::Float32, 3));
    return sample_call(LinearDynamicFp16(packed, kFusion), {sample_tensor({2, 5, 24}, dtype)});
  };
  catalogue.add({.name = LinearDynamicFp16({}, kFusion).name(),
                 .header = "quanta/ops/linear_dynamic.h",
                 .dtypes = dtypes::kFloat},
                sample);
}

}  // namespace

void add_dynamic(Catalogue& catalogue) {
  add_int8<Tail::None>(catalogue);
  add_int8<Tail::ReLU>(catalogue);
  add_fp16<Fusion::None>(catalogue);
  add_fp16<Fusion::ReLU>(catalogue);
}

}  // namespace linear_layers

namespace quantized {

using linear_layers::checked_impl;
using linear_layers::LinearDynamic;
using linear_layers::LinearDynamicFp16;
using linear_layers::LinearEachDynamic;
using linear_layers::Tail;

namespace {

constexpr float kMaxHalf = 65504.0F;

/// A Float16 copy; what is too large for it becomes the largest number, not infinity. NaN stays.
Tensor saturated_half(const Tensor& weight) {
  if (weight.dtype() == DType::Float16) return weight.clone(MemoryFormat::Contiguous);
  const Tensor saturated = weight.clone(MemoryFormat::Contiguous);
  auto* values = static_cast<float*>(saturated.data_ptr());
  for (std::int64_t i = 0; i < saturated.numel(); ++i) {
    values[i] = math::clamp(values[i], -kMaxHalf, kMaxHalf);
  }
  return saturated.to(DType::Float16);
}

}  // namespace

Tensor linear_dynamic(const Tensor& x, const LinearPackedParams& packed, ReduceRange reduce_range) {
  return run(LinearDynamic(packed, reduce_range, Tail::None), x);
}

Tensor linear_relu_dynamic(const Tensor& x, const LinearPackedParams& packed,
                           ReduceRange reduce_range) {
  return run(LinearDynamic(packed, reduce_range, Tail::ReLU), x);
}

LinearPackedParamsFp16::LinearPackedParamsFp16(const Tensor& weight, const Tensor& bias) {
  constexpr std::string_view kOp = "linear_prepack_fp16";
  QUANTA_CHECK(weight.defined(), "{}: weight: expected a tensor, got an undefined one", kOp);
  QUANTA_CHECK(weight.dtype() == DType::Float32 || weight.dtype() == DType::Float16,
               "{}: weight: expected Float32 or Float16, got {}", kOp, weight.dtype());
  QUANTA_CHECK(weight.dim() == 2 && weight.numel() > 0,
               "{}: weight: expected sizes [N, K] of 1 or more, got {}", kOp, weight.sizes());
  if (bias.defined()) {
    QUANTA_CHECK(bias.dtype() == DType::Float32, "{}: bias: expected Float32, got {}", kOp,
                 bias.dtype());
    QUANTA_CHECK(bias.dim() == 1 && bias.size(0) == weight.size(0),
                 "{}: bias: expected one number for each of {} output features, got sizes {}", kOp,
                 weight.size(0), bias.sizes());
  }
  impl_ = std::make_shared<Impl>(saturated_half(weight),
                                 bias.defined() ? bias.clone(MemoryFormat::Contiguous) : bias);
}

Tensor LinearPackedParamsFp16::weight() const {
  return checked_impl("LinearPackedParamsFp16", *this).weight();
}

const Tensor& LinearPackedParamsFp16::bias() const {
  return checked_impl("LinearPackedParamsFp16", *this).bias;
}

Tensor linear_dynamic_fp16(const Tensor& x, const LinearPackedParamsFp16& packed) {
  return run(LinearDynamicFp16(packed, Fusion::None), x);
}

Tensor linear_relu_dynamic_fp16(const Tensor& x, const LinearPackedParamsFp16& packed) {
  return run(LinearDynamicFp16(packed, Fusion::ReLU), x);
}

Tensor detail::linear_gelu_dynamic(const Tensor& x, const LinearPackedParams& packed,
                                   ReduceRange reduce_range) {
  return run(LinearDynamic(packed, reduce_range, Tail::Gelu), x);
}

Tensor detail::linear_add_dynamic(const Tensor& x, const LinearPackedParams& packed,
                                  ReduceRange reduce_range, const Tensor& addend) {
  return run(LinearDynamic(packed, reduce_range, Tail::Add), x, addend);
}

std::vector<Tensor> detail::linear_each_dynamic(const Tensor& x,
                                                std::span<const LinearPackedParams* const> packed,
                                                ReduceRange reduce_range) {
  LinearEachDynamic::Weights weights;
  for (const LinearPackedParams* one : packed) weights.push_back(*one);
  const Results results = run_all(LinearEachDynamic(std::move(weights), reduce_range), x);
  return {results.begin(), results.end()};
}

std::vector<LinearPackedParams> dynamic_params_of(const Operation& operation) {
  if (const auto* one = dynamic_cast<const LinearDynamic*>(&operation)) return {*one->packed};
  const auto* each = dynamic_cast<const LinearEachDynamic*>(&operation);
  return each == nullptr ? std::vector<LinearPackedParams>() : *each->weights;
}

const LinearPackedParamsFp16* fp16_params_of(const Operation& operation) {
  const auto* linear = dynamic_cast<const LinearDynamicFp16*>(&operation);
  return linear == nullptr ? nullptr : &*linear->packed;
}

}  // namespace quantized

detail::FloatWeight detail::float_weight_of(const quantized::LinearPackedParamsFp16& packed) {
  const Tensor halves = packed.impl().weight();
  const auto* from = static_cast<const std::uint16_t*>(halves.data_ptr());
  return {.out_features = halves.size(0),
          .in_features = halves.size(1),
          .group = halves.size(1),
          .halves = {from, from + halves.numel()},
          .bias = packed.bias()};
}

}  // namespace quanta
