#include "quanta/ops/conv/cpu_int8.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "quanta/ops/conv/cpu_gather.h"
#include "quanta/ops/conv/cpu_implicit.h"
#include "quanta/ops/cpu/strided_loop.h"
#include "quanta/ops/cpu/work_size.h"

namespace quanta::cpu {
namespace {

using onednn::Executable;

std::int64_t multiply_adds(const ConvShape& shape) {
  return shape.batch * shape.out_channels * (shape.in_channels / shape.groups) * shape.out[0] *
         shape.out[1] * shape.out[2] * shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
}

bool has_padding(const ConvShape& shape) {
  return shape.padding[0] != 0 || shape.padding[1] != 0 || shape.padding[2] != 0;
}

/// The same convolution over an input that has its border already.
ConvShape without_padding(ConvShape shape) {
  for (int i = 0; i < 3; ++i) {
    shape.in[i] += 2 * shape.padding[i];
    shape.padding[i] = 0;
  }
  return shape;
}

/// Whether a copy with a border is small enough to make: not for paddings far beyond the input.
bool can_pad_first(const ConvShape& shape) {
  constexpr double kMaxBytes = 1.0e9;
  const ConvShape outer = without_padding(shape);
  double bytes = static_cast<double>(shape.batch) * static_cast<double>(shape.in_channels);
  double source = bytes;
  for (int i = 0; i < 3; ++i) {
    bytes *= static_cast<double>(outer.in[i]);
    source *= static_cast<double>(shape.in[i]);
  }
  return bytes <= std::max(kMaxBytes, 4.0 * source);
}

/// Whether the convolution is a product of matrices, with a row for each pixel.
bool is_pointwise(const ConvShape& shape) {
  bool result = !shape.transposed && shape.groups == 1;
  for (int i = 0; i < 3; ++i) {
    result = result && shape.kernel[i] == 1 && shape.stride[i] == 1 && shape.padding[i] == 0;
  }
  return result;
}

/// A copy of `src` with a border of `value`, in the calling thread's buffer.
const std::uint8_t* padded_copy(const ConvShape& shape, std::int32_t value,
                                const std::uint8_t* src) {
  const ConvShape outer = without_padding(shape);
  const auto channels = static_cast<std::size_t>(shape.in_channels);
  const std::size_t row = static_cast<std::size_t>(outer.in[2]) * channels;
  const std::size_t border = static_cast<std::size_t>(shape.padding[2]) * channels;
  const std::size_t inner = static_cast<std::size_t>(shape.in[2]) * channels;
  const std::int64_t rows = shape.batch * outer.in[0] * outer.in[1];
  auto* dst = reinterpret_cast<std::uint8_t*>(
      onednn::thread_buffer(onednn::Buffer::Padded, static_cast<std::size_t>(rows) * row));

  constexpr std::int64_t kGrainBytes = 65536;
  const std::int64_t grain = kGrainBytes / static_cast<std::int64_t>(row) + 1;
  parallel_for(rows, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t r = begin; r < end; ++r) {
      std::uint8_t* to = dst + static_cast<std::size_t>(r) * row;
      const std::int64_t y = r % outer.in[1] - shape.padding[1];
      const std::int64_t z = r / outer.in[1] % outer.in[0] - shape.padding[0];
      const std::int64_t n = r / (outer.in[1] * outer.in[0]);
      if (y < 0 || y >= shape.in[1] || z < 0 || z >= shape.in[0]) {
        std::memset(to, value, row);
        continue;
      }
      const std::int64_t from = (n * shape.in[0] + z) * shape.in[1] + y;
      std::memset(to, value, border);
      std::memcpy(to + border, src + static_cast<std::size_t>(from) * inner, inner);
      std::memset(to + border + inner, value, border);
    }
  });
  return dst;
}

}  // namespace

struct ConvInt8::Plan : Int8Plan {
  using Int8Plan::Int8Plan;
  bool pad_first = false;
  DepthwiseEpilogue depthwise;
  ImplicitRows rows;  ///< Implicit
};

ConvInt8::ConvInt8(QuantizedWeight weight, const ConvShape& geometry, int spatial)
    : weight_(std::move(weight)),
      geometry_(geometry),
      spatial_(spatial),
      packed_(conv_plain_weight_desc(geometry, spatial, onednn::DataType::s8), weight_.codes(),
              weight_.forms()) {}

const ExactWeights& ConvInt8::exact_weights() const {
  std::call_once(exact_once_, [this] {
    exact_ = pack_exact_weights(weight_.codes(), weight_.zero_points(), geometry_);
    weight_.release_codes();
  });
  return exact_;
}

const CodePanels& ConvInt8::panels() const {
  std::call_once(panels_once_, [this] {
    if (is_pointwise(geometry_) && geometry_.in_channels % kPanelDepth == 0) {
      panels_ = pack_code_panels(weight_.codes(), geometry_.out_channels, geometry_.in_channels,
                                 {&weight_.forms()});
    } else if (gathers_rows(geometry_)) {
      panels_ = pack_gathered_panels(weight_.codes(), geometry_, weight_.forms());
    } else {
      panels_ = pack_implicit_panels(weight_.codes(), geometry_, weight_.forms());
    }
    weight_.release_codes();
    has_panels_.store(true, std::memory_order_release);
  });
  return panels_;
}

const DepthwiseWeights& ConvInt8::depthwise_weights() const {
  std::call_once(depthwise_once_, [this] {
    depthwise_ = pack_depthwise_weights(weight_.codes(), weight_.zero_points(), geometry_);
  });
  return depthwise_;
}

std::shared_ptr<const ConvInt8::Plan> ConvInt8::plan(const ConvShape& shape,
                                                     const CallQParams& qparams,
                                                     SumOutput output) const {
  const Key key{shape.batch, {shape.in[0], shape.in[1], shape.in[2]}, qparams,
                output,      threads_for(multiply_adds(shape)),       running_code()};
  return plans_.get(key, [&] { return make_plan(shape, key); });
}

std::shared_ptr<const ConvInt8::Plan> ConvInt8::make_plan(const ConvShape& shape,
                                                          const Key& key) const {
  const CallQParams& qparams = key.qparams;
  const auto plan = std::make_shared<Plan>(weight_, qparams, key.output);
  const bool pointwise = is_pointwise(shape);
  const Int8Kernel kernel = choose_kernel(Int8Convolution{
      .depthwise = is_depthwise(geometry_),
      .transposed = geometry_.transposed,
      .weight_zero_points = weight_.has_zero_points(),
      .pointwise = pointwise,
      .gathers = prefers_gather(shape),
      .implicit = !pointwise && prefers_implicit(shape),
      .codes = key.output != SumOutput::Sums,
      .in_channels = shape.in_channels,
  });
  switch (kernel) {
    case Int8Kernel::Depthwise:
      plan->kernel = kernel;
      plan->depthwise =
          depthwise_epilogue(depthwise_weights(), qparams.src_zero_point, plan->requantize);
      plan->name = "quanta:depthwise";
      break;
    case Int8Kernel::Codes:
    case Int8Kernel::Gather:
      plan->compensate(weight_, qparams.src_zero_point);
      plan->use_codes(kernel, panels(), key.threads);
      plan->name =
          kernel == Int8Kernel::Codes ? gemm_codes_name(panels(), pixels(shape)) : "quanta:gather";
      break;
    case Int8Kernel::Implicit:
      plan->compensate(weight_, qparams.src_zero_point);
      plan->use_codes(kernel, panels(), key.threads);
      plan->rows = ImplicitRows(shape);
      plan->name = panels().tiles ? "quanta:conv:amx" : "quanta:conv:vnni";
      break;
    case Int8Kernel::OneDnn:
      use_onednn(shape, key, *plan);
      break;
    case Int8Kernel::FewRows:
    case Int8Kernel::Floats:
    case Int8Kernel::Exact:
      break;
  }
  return plan;
}

void ConvInt8::use_onednn(const ConvShape& shape, const Key& key, Plan& plan) const {
  const CallQParams& qparams = key.qparams;
  const Int8Epilog epilog = plan.epilog(weight_, qparams, key.output);
  // oneDNN pads with 0, which is the real zero only for a zero point of 0.
  const bool pad_first = qparams.src_zero_point != 0 && has_padding(shape);
  if (pad_first && !can_pad_first(shape)) return;
  const onednn::ThreadScope threads(key.threads);
  const std::optional<Int8ConvPrimitive> found =
      int8_conv_primitive(pad_first ? without_padding(shape) : shape, spatial_, epilog);
  if (!found) return;

  plan.compensate(weight_, qparams.src_zero_point);
  plan.pad_first = pad_first;
  auto constants =
      plan.constants(packed_.in_layout(found->desc.weights_desc()), epilog, found->index,
                     {found->desc.bias_desc(), conv_row_desc(geometry_.out_channels, spatial_),
                      conv_row_desc(1, spatial_)},
                     qparams.dst_zero_point);
  weight_.release_codes();
  plan.use_onednn(found->primitive, found->desc, std::move(constants), epilog, key.threads);
}

std::span<const std::byte> ConvInt8::packed_memory() const noexcept {
  if (!has_panels_.load(std::memory_order_acquire)) return {};
  return {panels_.memory.get(), static_cast<std::size_t>(panels_.panels() * panels_.panel_bytes())};
}

std::string_view ConvInt8::codes(const ConvShape& shape, const CallQParams& qparams,
                                 SumOutput output, const std::uint8_t* src, std::uint8_t* dst,
                                 const After& after) const {
  const std::shared_ptr<const Plan> chosen = plan(shape, qparams, output);
  const std::int32_t zero_point = qparams.src_zero_point;
  switch (chosen->kernel) {
    case Int8Kernel::Codes:
      parallel_gemm_codes({dense_rows(src, pixels(shape), shape.in_channels), panels(),
                           chosen->panels, dst, after.table, after.addend},
                          chosen->threads);
      return chosen->name;
    case Int8Kernel::Gather:
      conv_gather_u8(
          {src, zero_point, shape, panels(), chosen->panels, dst, after.table, after.addend},
          chosen->threads);
      return chosen->name;
    case Int8Kernel::Implicit:
      conv_implicit_u8(
          {src, zero_point, shape, panels(), chosen->panels, dst, after.table, after.addend},
          chosen->rows, chosen->threads);
      return chosen->name;
    case Int8Kernel::OneDnn:
    case Int8Kernel::Depthwise:
    case Int8Kernel::FewRows:
    case Int8Kernel::Floats:
    case Int8Kernel::Exact:
      break;
  }
  const std::int64_t count = pixels(shape) * shape.out_channels;
  if (after.addend.codes == nullptr) {
    plain_codes(*chosen, shape, zero_point, src, dst);
  } else {
    auto* codes = reinterpret_cast<std::uint8_t*>(
        onednn::thread_buffer(onednn::Buffer::Codes, static_cast<std::size_t>(count)));
    plain_codes(*chosen, shape, zero_point, src, codes);
    parallel_elements(count, [&](std::int64_t begin, std::int64_t end) {
      add(codes + begin, after.addend.codes + begin, dst + begin, end - begin, after.addend.args,
          Rhs::Row);
    });
  }
  if (after.table != nullptr) parallel_lookup(dst, dst, count, *after.table);
  return chosen->name;
}

void ConvInt8::plain_codes(const Plan& plan, const ConvShape& shape, std::int32_t src_zero_point,
                           const std::uint8_t* src, std::uint8_t* dst) const {
  if (plan.pad_first) src = padded_copy(shape, src_zero_point, src);
  if (plan.kernel == Int8Kernel::Depthwise) {
    conv_depthwise_u8(src, depthwise_weights(), plan.depthwise, shape, dst);
  } else if (plan.kernel != Int8Kernel::OneDnn) {
    conv_exact_u8(src, src_zero_point, exact_weights(), shape, plan.requantize, dst);
  } else if (!plan.gives_sums) {
    plan.executable->run(src, dst);
  } else {
    std::int32_t* sums = sums_buffer(pixels(shape) * shape.out_channels);
    plan.executable->run(src, sums);
    requantize_rows(sums, plan.compensation_or_null(), pixels(shape), shape.out_channels,
                    plan.requantize, dst);
  }
}

Int8Sums ConvInt8::sums(const ConvShape& shape, std::int32_t src_zero_point,
                        const std::uint8_t* src) const {
  const std::shared_ptr<const Plan> chosen =
      plan(shape, CallQParams{1.0F, src_zero_point, 1.0F, 0}, SumOutput::Sums);
  std::int32_t* sums = sums_buffer(pixels(shape) * shape.out_channels);
  if (chosen->kernel == Int8Kernel::OneDnn) {
    if (chosen->pad_first) src = padded_copy(shape, src_zero_point, src);
    chosen->executable->run(src, sums);
  } else {
    conv_exact_s32(src, src_zero_point, exact_weights(), shape, sums);
  }
  return {sums, chosen->compensation_or_null(), chosen->name, chosen};
}

}  // namespace quanta::cpu
