#include "quanta/ops/conv/cpu_gradients.h"

#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "quanta/ops/cpu/onednn/plan_cache.h"
#include "quanta/ops/cpu/onednn/plans.h"
#include "quanta/runtime/parallel.h"
#include "quanta/runtime/tensor.h"

namespace quanta::cpu {
namespace {

using dnnl::memory;
using onednn::DataType;
using onednn::Md;
using onednn::Tag;

enum class Pass : std::uint8_t { Forward, Data, Weights, WeightsAndBias };

struct Key {
  Pass pass;
  ConvShape shape;
  int spatial;
  int threads;
  bool operator==(const Key&) const = default;
};

// A primitive with the layouts of its arguments; the addresses come with each call.
struct Plan {
  dnnl::primitive primitive;
  Md src, weight, plain_weight, dst, bias, scratchpad;
};

// All of the process: a training step has two for each layer.
const PlanCache<Key, Plan, 256>& plans() {
  static const PlanCache<Key, Plan, 256> cache;
  return cache;
}

struct Parameters {
  memory::dims stride, dilation, left, right;
};

// A transposed convolution backwards is a convolution from its output to its input.
ConvShape turned_around(const ConvShape& shape) {
  ConvShape result = shape;
  result.transposed = false;
  std::swap(result.in_channels, result.out_channels);
  std::swap(result.in, result.out);
  return result;
}

// `exact_right`: the padding that gives the output size without a rest, as the shape of a
// transposed convolution demands.
Parameters parameters(const ConvShape& shape, int spatial, bool exact_right) {
  Parameters result;
  for (int d = 3 - spatial; d < 3; ++d) {
    const std::int64_t reach = shape.dilation[d] * (shape.kernel[d] - 1) + 1;
    result.stride.push_back(shape.stride[d]);
    result.dilation.push_back(shape.dilation[d] - 1);
    result.left.push_back(shape.padding[d]);
    result.right.push_back(exact_right ? (shape.out[d] - 1) * shape.stride[d] + reach -
                                             shape.in[d] - shape.padding[d]
                                       : shape.padding[d]);
  }
  return result;
}

Plan make_plan(const Key& key, bool exact_right) {
  const Parameters p = parameters(key.shape, key.spatial, exact_right);
  const Md src = conv_src_desc(key.shape, key.spatial, DataType::f32);
  const Md dst = conv_dst_desc(key.shape, key.spatial, DataType::f32);
  const Md any_weight = conv_any_weight_desc(key.shape, key.spatial, DataType::f32);
  const auto algorithm = dnnl::algorithm::convolution_direct;
  const dnnl::engine& engine = onednn::engine();
  // Threads share the primitives, and oneDNN's own scratchpad belongs to the thread that made one.
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  const dnnl::convolution_forward::primitive_desc forward(
      engine, dnnl::prop_kind::forward_training, algorithm, src, any_weight, Md(), dst, p.stride,
      p.dilation, p.left, p.right, attributes);
  Plan plan;
  plan.src = src;
  plan.dst = dst;
  plan.plain_weight = conv_plain_weight_desc(key.shape, key.spatial, DataType::f32);
  switch (key.pass) {
    case Pass::Forward:
      plan.weight = forward.weights_desc();
      plan.scratchpad = forward.scratchpad_desc();
      plan.primitive = dnnl::convolution_forward(forward);
      break;
    case Pass::Data: {
      const dnnl::convolution_backward_data::primitive_desc desc(engine, algorithm, src, any_weight,
                                                                 dst, p.stride, p.dilation, p.left,
                                                                 p.right, forward, attributes);
      plan.weight = desc.weights_desc();
      plan.scratchpad = desc.scratchpad_desc();
      plan.primitive = dnnl::convolution_backward_data(desc);
      break;
    }
    case Pass::Weights:
    case Pass::WeightsAndBias: {
      if (key.pass == Pass::WeightsAndBias) {
        plan.bias = Md({key.shape.out_channels}, DataType::f32, Tag::x);
      }
      const dnnl::convolution_backward_weights::primitive_desc desc(
          engine, algorithm, src, any_weight, plan.bias, dst, p.stride, p.dilation, p.left, p.right,
          forward, attributes);
      plan.weight = desc.diff_weights_desc();
      plan.scratchpad = desc.scratchpad_desc();
      plan.primitive = dnnl::convolution_backward_weights(desc);
      break;
    }
  }
  return plan;
}

std::shared_ptr<const Plan> plan_for(Pass pass, const ConvShape& shape, int spatial,
                                     bool exact_right) {
  const Key key{pass, shape, spatial, get_num_threads()};
  return plans().get(key, [&] {
    return onednn::checked("convolution_backward", [&] {
      return std::make_shared<const Plan>(make_plan(key, exact_right));
    });
  });
}

memory wrap(const Md& desc, const void* data) {
  // oneDNN takes addresses as non-const; sources are only read.
  return {desc, onednn::engine(), const_cast<void*>(data)};
}

using CallArguments = std::unordered_map<int, memory>;

void execute(const Plan& plan, CallArguments arguments) {
  arguments.emplace(DNNL_ARG_SCRATCHPAD,
                    wrap(plan.scratchpad, onednn::thread_buffer(onednn::Buffer::Scratchpad,
                                                                plan.scratchpad.get_size())));
  plan.primitive.execute(onednn::stream(), arguments);
}

// Memory of the caching allocator for a layout of oneDNN's.
struct Scratch {
  explicit Scratch(const Md& desc)
      : bytes(Tensor::empty({static_cast<std::int64_t>(desc.get_size())}, DType::UInt8)),
        memory(wrap(desc, bytes.data_ptr())) {}
  Tensor bytes;
  dnnl::memory memory;
};

// y = convolution of x, or the gradient of its input.
void run_with_weight(Pass pass, const ConvShape& shape, int spatial, bool exact_right,
                     const float* given, const float* weight, float* result) {
  const std::shared_ptr<const Plan> plan = plan_for(pass, shape, spatial, exact_right);
  onednn::checked("convolution_backward_data", [&] {
    memory plain = wrap(plan->plain_weight, weight);
    std::optional<Scratch> packed;
    if (plan->weight != plan->plain_weight) {
      packed.emplace(plan->weight);
      dnnl::reorder(plain, packed->memory).execute(onednn::stream(), plain, packed->memory);
    }
    const memory& weights = packed ? packed->memory : plain;
    if (pass == Pass::Forward) {
      execute(*plan, {{DNNL_ARG_SRC, wrap(plan->src, given)},
                      {DNNL_ARG_WEIGHTS, weights},
                      {DNNL_ARG_DST, wrap(plan->dst, result)}});
    } else {
      execute(*plan, {{DNNL_ARG_DIFF_DST, wrap(plan->dst, given)},
                      {DNNL_ARG_WEIGHTS, weights},
                      {DNNL_ARG_DIFF_SRC, wrap(plan->src, result)}});
    }
    onednn::stream().wait();
  });
}

void sum_channels(const ConvShape& shape, const float* image, float* sums) {
  const std::int64_t channels = shape.out_channels;
  const std::int64_t positions = pixels(shape);
  std::vector<double> totals(static_cast<std::size_t>(channels), 0.0);
  for (std::int64_t p = 0; p < positions; ++p) {
    for (std::int64_t c = 0; c < channels; ++c) {
      totals[static_cast<std::size_t>(c)] += static_cast<double>(image[p * channels + c]);
    }
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    sums[c] = static_cast<float>(totals[static_cast<std::size_t>(c)]);
  }
}

}  // namespace

void conv_backward_data(const ConvShape& shape, int spatial, const float* diff_dst,
                        const float* weight, float* diff_src) {
  if (shape.transposed) {
    run_with_weight(Pass::Forward, turned_around(shape), spatial, true, diff_dst, weight, diff_src);
  } else {
    run_with_weight(Pass::Data, shape, spatial, false, diff_dst, weight, diff_src);
  }
}

void conv_backward_weights(const ConvShape& shape, int spatial, const float* src,
                           const float* diff_dst, float* diff_weight, float* diff_bias) {
  const ConvShape run = shape.transposed ? turned_around(shape) : shape;
  const float* run_src = shape.transposed ? diff_dst : src;
  const float* run_dst = shape.transposed ? src : diff_dst;
  const bool with_bias = diff_bias != nullptr && !shape.transposed;
  const std::shared_ptr<const Plan> plan =
      plan_for(with_bias ? Pass::WeightsAndBias : Pass::Weights, run, spatial, shape.transposed);
  onednn::checked("convolution_backward_weights", [&] {
    memory plain = wrap(plan->plain_weight, diff_weight);
    std::optional<Scratch> packed;
    if (plan->weight != plan->plain_weight) packed.emplace(plan->weight);
    CallArguments arguments{{DNNL_ARG_SRC, wrap(plan->src, run_src)},
                            {DNNL_ARG_DIFF_DST, wrap(plan->dst, run_dst)},
                            {DNNL_ARG_DIFF_WEIGHTS, packed ? packed->memory : plain}};
    if (with_bias) arguments.emplace(DNNL_ARG_DIFF_BIAS, wrap(plan->bias, diff_bias));
    execute(*plan, std::move(arguments));
    if (packed) {
      dnnl::reorder(packed->memory, plain).execute(onednn::stream(), packed->memory, plain);
    }
    onednn::stream().wait();
  });
  if (diff_bias != nullptr && shape.transposed) sum_channels(shape, diff_dst, diff_bias);
}

}  // namespace quanta::cpu
