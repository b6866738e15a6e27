#include "quanta/ops/detail/cuda_int8_weight.h"

#include <algorithm>
#include <vector>

#include "quanta/ops/cuda/few_products.h"
#include "quanta/ops/detail/code_steps.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/graph.h"
#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::detail {
namespace {

// Calls with other quantization parameters that a weight remembers.
constexpr std::size_t kMostTerms = 8;

std::int64_t taps_of(const cpu::ConvShape& shape) {
  return shape.kernel[0] * shape.kernel[1] * shape.kernel[2];
}

template <typename T>
cuda::Buffer upload(Device device, const std::vector<T>& values) {
  return {device, values.data(), values.size() * sizeof(T)};
}

int to_int(std::int64_t value) {
  QUANTA_SUPPORTED(value <= (std::int64_t{1} << 30),
                   "conv: x: expected sizes up to 2^30 on a CUDA device, got {}", value);
  return static_cast<int>(value);
}

// As how many int8 matrices, whose sum they are, codes less their zero points are multiplied.
int parts_of(const cpu::QuantizedWeight& weight) {
  if (!weight.has_zero_points()) return 1;
  // -255..255, of which two reach -256..254: one more for 127 with a zero point of -128.
  const std::vector<std::int64_t>& zero_points = weight.zero_points();
  return *std::min_element(zero_points.begin(), zero_points.end()) == -128 ? 3 : 2;
}

// How many bytes of a pixel's channels can be copied at once.
int piece_of(const cpu::ConvShape& shape, const void* x) {
  const std::int64_t group_channels = shape.in_channels / shape.groups;
  for (const int piece : {16, 8, 4}) {
    const bool is_aligned = reinterpret_cast<std::uintptr_t>(x) % static_cast<unsigned>(piece) == 0;
    if (shape.in_channels % piece == 0 && group_channels % piece == 0 && is_aligned) return piece;
  }
  return 1;
}

// As many channels of a group as the weight is packed for.
std::int64_t packed_channels(const cpu::ConvShape& shape) {
  const std::int64_t channels = shape.in_channels / shape.groups;
  const bool has_few = cuda::has_few_products(shape.out_channels / shape.groups, channels);
  return shape.groups == 1 && channels == 3 && !has_few ? 4 : channels;
}

void take_packed_channels(cuda::ProductParams& params, const cpu::ConvShape& shape) {
  const auto channels = static_cast<int>(packed_channels(shape));
  if (channels != params.group_channels) params.piece = params.group_channels;
  params.group_channels = channels;
}

}  // namespace

void set_shape(cuda::ProductParams& params, const cpu::ConvShape& shape, const void* x) {
  params.x = static_cast<const std::uint8_t*>(x);
  params.pixels = pixels(shape);
  for (int d = 0; d < 3; ++d) {
    // With what is padded, so that no position of a tap is beyond an int.
    to_int(std::max(shape.in[d], shape.out[d]) + 2 * shape.padding[d]);
    params.in[d] = to_int(shape.in[d]);
    params.out[d] = to_int(shape.out[d]);
    params.kernel[d] = to_int(shape.kernel[d]);
    params.stride[d] = to_int(shape.stride[d]);
    params.padding[d] = to_int(shape.padding[d]);
    params.dilation[d] = to_int(shape.dilation[d]);
  }
  params.transposed = shape.transposed;
  params.groups = to_int(shape.groups);
  params.channels = to_int(shape.in_channels);
  params.group_channels = to_int(shape.in_channels / shape.groups);
  params.columns = to_int(shape.out_channels / shape.groups);
  params.piece = piece_of(shape, x);
}

CudaInt8Weight::Packed CudaInt8Weight::pack(Device device, const cpu::QuantizedWeight& weight,
                                            const cpu::ConvShape& shape) {
  const std::int64_t taps = taps_of(shape);
  const std::int64_t channels = shape.in_channels / shape.groups;
  const std::int64_t columns = shape.out_channels / shape.groups;
  const std::int64_t padded = round_up(columns, std::int64_t{cuda::ProductParams::kColumns});
  Packed result;
  result.parts = parts_of(weight);
  const std::int64_t of_tap = packed_channels(shape);
  const std::int64_t one = taps * of_tap;
  const std::int64_t depth =
      round_up(one * result.parts, std::int64_t{cuda::ProductParams::kDepth});
  result.depth = to_int(depth);
  result.channel_sums.assign(static_cast<std::size_t>(shape.out_channels), 0);
  std::vector<std::int8_t> codes(static_cast<std::size_t>(shape.groups * padded * depth));
  const std::int8_t* from = weight.codes();
  const std::vector<std::int64_t>& zero_points = weight.zero_points();
  for (std::int64_t g = 0; g < shape.groups; ++g) {
    for (std::int64_t n = 0; n < columns; ++n) {
      const std::int64_t out = g * columns + n;
      const std::int64_t zero_point =
          zero_points[zero_points.size() == 1 ? 0 : static_cast<std::size_t>(out)];
      std::int8_t* row = codes.data() + (g * padded + n) * depth;
      for (std::int64_t tap = 0; tap < taps; ++tap) {
        for (std::int64_t c = 0; c < channels; ++c) {
          // torch's order: [O, C/groups, taps], transposed [C, O/groups, taps].
          const std::int64_t at = shape.transposed ? ((g * channels + c) * columns + n) * taps + tap
                                                   : (out * channels + c) * taps + tap;
          const std::int64_t value = from[at] - zero_point;  // -255..255
          std::int64_t rest = value;
          for (int part = 0; part < result.parts; ++part) {
            const std::int64_t of_part = std::clamp<std::int64_t>(rest, -128, 127);
            row[part * one + tap * of_tap + c] = static_cast<std::int8_t>(of_part);
            rest -= of_part;
          }
          result.channel_sums[static_cast<std::size_t>(out)] += value;
        }
      }
    }
  }
  result.codes = upload(device, codes);
  return result;
}

std::shared_ptr<const CudaInt8Weight::Terms> CudaInt8Weight::make_terms(
    Device device, const cpu::QuantizedWeight& weight, const Packed& packed,
    const ProductCall& call) {
  auto terms = std::make_shared<Terms>();
  const cpu::CallQParams& qparams = call.qparams;
  terms->qparams = qparams;
  terms->end = call.end;
  terms->code = call.code;
  terms->pad = upload(
      device, std::vector<std::uint8_t>(16, static_cast<std::uint8_t>(qparams.src_zero_point)));
  std::vector<std::int32_t> compensation;
  for (const std::int64_t sum : packed.channel_sums) {
    compensation.push_back(static_cast<std::int32_t>(-qparams.src_zero_point * sum));
  }
  terms->compensation = upload(device, compensation);
  if (call.end == cuda::ProductEnd::Codes) {
    terms->multiplier = upload(device, weight.multipliers(qparams));
    const cpu::BiasTerms bias = weight.bias_terms(qparams.src_scale);
    terms->bias = upload(device, bias.bias);
    terms->bias_factor = bias.factor;
    terms->has_bias = true;
  } else {
    terms->multiplier = upload(device, weight.sum_scales(qparams.src_scale));
    terms->has_bias = weight.has_bias();
    if (terms->has_bias) terms->bias = upload(device, weight.real_bias(qparams.src_scale));
  }
  if (call.code != nullptr) {
    const CodeSteps steps = code_steps([&](float value) { return call.code(value, qparams); });
    terms->steps = cuda::Buffer(device, steps.data(), sizeof(steps));
  }
  return terms;
}

std::shared_ptr<const CudaInt8Weight::DynamicTerms> CudaInt8Weight::make_dynamic_terms(
    Device device, const cpu::QuantizedWeight& weight, const Packed& packed, bool with_pads) {
  auto terms = std::make_shared<DynamicTerms>();
  std::vector<std::int32_t> sums;
  for (const std::int64_t sum : packed.channel_sums) {
    sums.push_back(static_cast<std::int32_t>(sum));
  }
  terms->weight_sums = upload(device, sums);
  terms->scales = upload(device, weight.sum_scales(1.0F));
  terms->has_bias = weight.has_bias();
  terms->has_integer_bias = weight.has_integer_bias();
  if (terms->has_bias) {
    terms->bias = cuda::Buffer(device, weight.bias().data_ptr(), weight.bias().nbytes());
  }
  if (with_pads) {
    std::vector<std::uint8_t> pads;
    for (int zero_point = 0; zero_point < 256; ++zero_point) {
      pads.insert(pads.end(), 16, static_cast<std::uint8_t>(zero_point));
    }
    terms->pads = upload(device, pads);
  }
  return terms;
}

CudaInt8Weight::OnDevice& CudaInt8Weight::on_device(Device device,
                                                    const cpu::QuantizedWeight& weight,
                                                    const cpu::ConvShape& shape) {
  const auto known = devices_.find(device.index);
  if (known != devices_.end()) return known->second;
  OnDevice made{pack(device, weight, shape), nullptr, {}};
  return devices_.emplace(device.index, std::move(made)).first->second;
}

void CudaInt8Weight::run_dynamic(Device device, const cpu::QuantizedWeight& weight,
                                 std::int64_t rows, const DynamicCall& call, const void* x,
                                 float* y) {
  run_dynamic(device, weight,
              {.batch = rows,
               .in_channels = weight.weight().size(1),
               .out_channels = weight.weight().size(0)},
              call, x, y);
}

void CudaInt8Weight::run_dynamic(Device device, const cpu::QuantizedWeight& weight,
                                 const cpu::ConvShape& shape, const DynamicCall& call,
                                 const void* x, float* y) {
  // A linear layer has no border: what is read beyond its depth meets a weight of 0.
  const bool with_pads = weight.weight().dim() > 2;
  cuda::ProductParams params;
  std::shared_ptr<const DynamicTerms> terms;
  {
    const std::lock_guard lock(mutex_);
    OnDevice& mine = on_device(device, weight, shape);
    if (mine.dynamic == nullptr) {
      mine.dynamic = make_dynamic_terms(device, weight, mine.packed, with_pads);
    }
    terms = mine.dynamic;
    params.w = mine.packed.codes.as<std::int8_t>();
    params.depth = mine.packed.depth;
    params.parts = mine.packed.parts;
  }
  set_shape(params, shape, x);
  take_packed_channels(params, shape);
  params.y = y;
  // Of a linear layer any bytes will do, 16 for each zero point, and each weight has as many.
  static_assert(cuda::ProductParams::kColumns * cuda::ProductParams::kDepth >= 256 * 16);
  params.pad =
      with_pads ? terms->pads.as<std::uint8_t>() : reinterpret_cast<const std::uint8_t*>(params.w);
  params.end = call.on_grid ? cuda::ProductEnd::Grid : cuda::ProductEnd::Dynamic;
  params.function = call.function;
  params.multiplier = terms->scales.as<float>();
  params.dynamic = {.scale = call.src_scale,
                    .zero_point = call.src_zero_point,
                    .scale_at = call.src_scale_at,
                    .weight_sums = terms->weight_sums.as<std::int32_t>(),
                    .addend = call.addend,
                    .bias_per_channel = weight.weight().is_per_channel()};
  if (terms->has_integer_bias) {
    params.dynamic.integer_bias = terms->bias.as<std::int32_t>();
  } else if (terms->has_bias) {
    params.bias = terms->bias.as<float>();
  }
  params.dynamic.zero_point_at = call.src_zero_point_at;
  if (with_pads && call.src_zero_point_at == nullptr) params.pad += 16 * call.src_zero_point;
  cuda::multiply_codes(device, params);
}

void CudaInt8Weight::run(Device device, const cpu::QuantizedWeight& weight,
                         const cpu::ConvShape& shape, const ProductCall& call, const void* x,
                         void* y) {
  cuda::ProductParams params;
  std::shared_ptr<const Terms> terms;
  {
    const std::lock_guard lock(mutex_);
    OnDevice& mine = on_device(device, weight, shape);
    for (const auto& entry : mine.terms) {
      if (entry->qparams == call.qparams && entry->end == call.end && entry->code == call.code) {
        terms = entry;
      }
    }
    if (terms == nullptr) {
      terms = make_terms(device, weight, mine.packed, call);
      if (mine.terms.size() == kMostTerms) mine.terms.erase(mine.terms.begin());
      mine.terms.push_back(terms);
    }
    params.w = mine.packed.codes.as<std::int8_t>();
    params.depth = mine.packed.depth;
    params.parts = mine.packed.parts;
  }
  cuda::keep_for_graph(terms);  // others may take its place while the graph lives
  set_shape(params, shape, x);
  take_packed_channels(params, shape);
  params.y = y;
  params.pad = terms->pad.as<std::uint8_t>();
  params.end = call.end;
  params.function = call.function;
  params.negative_slope = call.negative_slope;
  params.steps = call.code == nullptr ? nullptr : terms->steps.as<float>();
  params.compensation = terms->compensation.as<std::int32_t>();
  params.multiplier = terms->multiplier.as<float>();
  params.bias = terms->has_bias ? terms->bias.as<float>() : nullptr;
  params.bias_factor = terms->bias_factor;
  params.inv_scale = 1.0F / call.qparams.dst_scale;
  params.zero_point = call.qparams.dst_zero_point;
  params.low = call.relu ? call.qparams.dst_zero_point : 0;
  params.addend = call.addend;
  params.has_table = call.table != nullptr;
  if (call.table != nullptr) std::copy(call.table->begin(), call.table->end(), params.table);
  cuda::multiply_codes(device, params);
}

}  // namespace quanta::detail
