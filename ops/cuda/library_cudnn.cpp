// Convolutions of floats through cuDNN. All that includes cudnn-frontend is here: it takes long to
// compile.

#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <array>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "quanta/ops/cpu/onednn/plan_cache.h"
#include "quanta/ops/cuda/library.h"
#include "quanta/ops/cuda/library_checks.h"
#include "quanta/ops/cuda/shared_library.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/cuda/cudart.h"
#include "quanta/runtime/cuda/memory.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // through which it calls cuDNN
}  // namespace cudnn_frontend

namespace quanta::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Tensor = std::shared_ptr<Tensor_attributes>;

// Numbers of the tensors within a graph.
constexpr std::int64_t kInput = 1, kWeight = 2, kOutput = 3, kBias = 4;

// Looked for again by the next call when it is not there.
void open_cudnn() {
  static const SharedLibrary kLibrary(
      "libcudnn.so.9", "cuDNN 9 (from PyPI: nvidia-cudnn-cu13, which tools/setup --cuda fetches)");
  fe::cudnn_dlhandle = kLibrary.handle();
}

void check(fe::error_t error, std::string_view call) {
  if (error.is_good()) return;
  throw BackendError(fmt::format("cuDNN: {}: {}", call, error.get_message()));
}
void check(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw BackendError(fmt::format("{}: {}", call, fe::detail::get_error_string(status)));
}

// cudnn-frontend throws what is no error of ours when a library or function is missing.
template <typename Body>
auto guarded(std::string_view what, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw BackendError(fmt::format("cuDNN: {}: {}", what, error.what()));
  }
}

fe::DataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::Float16:
      return fe::DataType_t::HALF;
    case DType::BFloat16:
      return fe::DataType_t::BFLOAT16;
    default:
      return fe::DataType_t::FLOAT;
  }
}

std::vector<std::int64_t> last(const std::int64_t (&values)[3], int spatial) {
  return {values + 3 - spatial, values + 3};
}

/// A dense channels-last tensor, in the order of sizes that cuDNN has: [N, C, spatial...].
Tensor_attributes describe(std::int64_t number, std::int64_t outer, std::int64_t channels,
                           const std::int64_t (&sizes)[3], const FloatConvolution& convolution,
                           std::int64_t alignment) {
  std::vector<std::int64_t> dims{outer, channels};
  std::vector<std::int64_t> strides{channels, 1};
  for (const std::int64_t size : last(sizes, convolution.spatial)) {
    dims.push_back(size);
    strides.push_back(0);
    strides[0] *= size;
  }
  std::int64_t stride = channels;
  for (std::size_t d = dims.size() - 1; d >= 2; --d) {
    strides[d] = stride;
    stride *= dims[d];
  }
  return Tensor_attributes()
      .set_uid(number)
      .set_dim(dims)
      .set_stride(strides)
      .set_data_type(data_type(convolution.dtype))
      .set_alignment(alignment);
}

template <typename Attributes>
Attributes settings(const FloatConvolution& convolution) {
  const cpu::ConvShape& shape = convolution.shape;
  const int spatial = convolution.spatial;
  Attributes attributes;
  attributes.set_padding(last(shape.padding, spatial))
      .set_stride(last(shape.stride, spatial))
      .set_dilation(last(shape.dilation, spatial));
  attributes.set_compute_data_type(fe::DataType_t::FLOAT);
  return attributes;
}

// The graph of one convolution, with the plans that cuDNN proposes for the device.
std::unique_ptr<Graph> make_graph(const FloatConvolution& convolution, std::int64_t alignment,
                                  std::shared_ptr<const fe::DeviceProperties> device) {
  const cpu::ConvShape& shape = convolution.shape;
  auto graph = std::make_unique<Graph>();
  graph->set_io_data_type(data_type(convolution.dtype))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_device_properties(std::move(device));
  const Tensor_attributes input =
      describe(kInput, shape.batch, shape.in_channels, shape.in, convolution, alignment);
  const Tensor_attributes weight =
      describe(kWeight, shape.out_channels, shape.in_channels / shape.groups, shape.kernel,
               convolution, alignment);
  const Tensor_attributes output =
      describe(kOutput, shape.batch, shape.out_channels, shape.out, convolution, alignment);
  const auto gives = [](const Tensor& result, const Tensor_attributes& as) {
    result->set_uid(as.get_uid())
        .set_dim(as.get_dim())
        .set_stride(as.get_stride())
        .set_data_type(as.get_data_type())
        .set_alignment(as.get_alignment())
        .set_output(true);
  };
  // Sums in float, to which a bias is added before they are rounded.
  const auto with_bias = [&](const Tensor& sums, const Tensor_attributes& as) {
    if (!convolution.has_bias) return gives(sums, as);
    sums->set_dim(as.get_dim()).set_stride(as.get_stride()).set_data_type(fe::DataType_t::FLOAT);
    const Tensor_attributes bias =
        describe(kBias, 1, as.get_dim()[1], {1, 1, 1}, convolution, item_size(convolution.dtype));
    auto add = fe::graph::Pointwise_attributes()
                   .set_mode(fe::PointwiseMode_t::ADD)
                   .set_compute_data_type(fe::DataType_t::FLOAT);
    gives(graph->pointwise(sums, graph->tensor(bias), add), as);
  };
  switch (convolution.pass) {
    case ConvPass::Output:
      with_bias(graph->conv_fprop(graph->tensor(input), graph->tensor(weight),
                                  settings<fe::graph::Conv_fprop_attributes>(convolution)),
                output);
      break;
    case ConvPass::Input:
      with_bias(graph->conv_dgrad(graph->tensor(output), graph->tensor(weight),
                                  settings<fe::graph::Conv_dgrad_attributes>(convolution)),
                input);
      break;
    case ConvPass::Weight:
      gives(graph->conv_wgrad(graph->tensor(output), graph->tensor(input),
                              settings<fe::graph::Conv_wgrad_attributes>(convolution)),
            weight);
      break;
  }
  check(graph->validate(), "validate");
  check(graph->build_operation_graph(), "build_operation_graph");
  check(graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}),
        "create_execution_plans");
  // The same sums in each call, with the bound of library.h: not those of transformed tiles.
  graph->deselect_numeric_notes(
      {fe::NumericalNote_t::NONDETERMINISTIC, fe::NumericalNote_t::FFT,
       fe::NumericalNote_t::WINOGRAD, fe::NumericalNote_t::WINOGRAD_TILE_4x4,
       fe::NumericalNote_t::WINOGRAD_TILE_6x6, fe::NumericalNote_t::WINOGRAD_TILE_13x13,
       fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION});
  if (convolution.dtype == DType::Float32 && convolution.factors == FloatFactors::Full) {
    graph->deselect_numeric_notes(
        {fe::NumericalNote_t::TENSOR_CORE, fe::NumericalNote_t::DOWN_CONVERT_INPUTS});
  }
  return graph;
}

std::string to_string(const FloatConvolution& convolution) {
  const cpu::ConvShape& shape = convolution.shape;
  static constexpr std::string_view kPasses[] = {"output", "input", "weight"};
  return fmt::format(
      "the {} of {}{} x [{}, {}, {}, {}, {}] by [{}, {}, {}, {}, {}], stride {}, padding {}, "
      "dilation {}",
      kPasses[static_cast<int>(convolution.pass)], convolution.dtype,
      convolution.has_bias ? " with a bias" : "", shape.batch, shape.in_channels, shape.in[0],
      shape.in[1], shape.in[2], shape.out_channels, shape.in_channels / shape.groups,
      shape.kernel[0], shape.kernel[1], shape.kernel[2], fmt::join(shape.stride, "x"),
      fmt::join(shape.padding, "x"), fmt::join(shape.dilation, "x"));
}

/// A graph with the plan that is taken; none, where cuDNN has none with a bias.
struct Plan {
  std::unique_ptr<Graph> graph;
  std::int64_t index = 0;
  std::size_t workspace = 0;
  std::string name;
};

// The first plan that cuDNN builds. Not by Graph::check_support, which asks for a current device.
Plan first_plan(const FloatConvolution& convolution, std::unique_ptr<Graph> graph) {
  std::string why;
  for (std::int64_t i = 0; i < graph->get_execution_plan_count(); ++i) {
    fe::error_t error = graph->build_plan_at_index(i);
    if (error.is_bad()) {
      why = error.get_message();
      continue;
    }
    Plan plan;
    plan.index = i;
    plan.workspace = static_cast<std::size_t>(graph->get_workspace_size_plan_at_index(i));
    check(graph->get_plan_name_at_index(i, plan.name), "get_plan_name_at_index");
    plan.graph = std::move(graph);
    return plan;
  }
  throw BackendError(fmt::format("cuDNN: build_plan_at_index: expected a plan for {}, got none: {}",
                                 to_string(convolution), why));
}

/// All that a plan depends on.
struct Key {
  FloatConvolution convolution;
  std::int8_t device;
  std::int64_t alignment;  // of all operands, in bytes
  bool operator==(const Key&) const = default;
};

// 16, or what is left of it.
std::int64_t alignment_of(DType dtype, const ConvOperands& operands) {
  const std::uintptr_t bits = reinterpret_cast<std::uintptr_t>(operands.input) |
                              reinterpret_cast<std::uintptr_t>(operands.weight) |
                              reinterpret_cast<std::uintptr_t>(operands.output);
  return bits % 16 == 0 ? 16 : static_cast<std::int64_t>(item_size(dtype));
}

// A device's handle is for one thread at a time. Never destroyed, as CUDA may be gone before.
struct Handle {
  std::mutex mutex;
  cudnnHandle_t handle = nullptr;
};

Handle& handle_of(Device device) {
  static auto* handles = new std::array<Handle, 128>;
  Handle& mine = (*handles)[static_cast<std::size_t>(device.index)];
  const std::lock_guard lock(mine.mutex);
  if (mine.handle == nullptr) check(fe::detail::create_handle(&mine.handle), "cudnnCreate");
  return mine;
}

std::shared_ptr<const Plan> plan_for(const Key& key) {
  static const cpu::PlanCache<Key, Plan, 256> plans;
  return plans.get(key, [&] {
    auto properties = std::make_shared<fe::DeviceProperties>();
    check(properties->set_device_id(key.device).build(), "DeviceProperties");
    try {
      return std::make_shared<const Plan>(first_plan(
          key.convolution, make_graph(key.convolution, key.alignment, std::move(properties))));
    } catch (const BackendError&) {
      if (!key.convolution.has_bias) throw;
      return std::make_shared<const Plan>();
    }
  });
}

}  // namespace

void libraries::convolve(Device device, const FloatConvolution& convolution,
                         const ConvOperands& operands) {
  const cudaStream_t stream = stream_of(device);
  open_cudnn();
  guarded(to_string(convolution), [&] {
    Handle& handle = handle_of(device);
    const std::shared_ptr<const Plan> plan =
        plan_for({convolution, device.index, alignment_of(convolution.dtype, operands)});
    if (plan->graph == nullptr) throw BackendError("cuDNN: no plan for a convolution with a bias");
    const Buffer workspace = plan->workspace > 0 ? Buffer(device, plan->workspace) : Buffer();
    std::unordered_map<std::int64_t, void*> tensors{
        {kInput, operands.input}, {kWeight, operands.weight}, {kOutput, operands.output}};
    if (convolution.has_bias) tensors[kBias] = operands.bias;
    const std::lock_guard lock(handle.mutex);
    // Another one in each thread that captures its work.
    check(fe::detail::set_stream(handle.handle, stream), "cudnnSetStream");
    check(plan->graph->execute_plan_at_index(handle.handle, tensors, workspace.as<void>(),
                                             plan->index),
          "execute");
  });
}

bool libraries::has_plan(Device device, const FloatConvolution& convolution,
                         const ConvOperands& operands) {
  stream_of(device);  // throws where there is no such device
  open_cudnn();
  return guarded(to_string(convolution), [&] {
    return plan_for({convolution, device.index, alignment_of(convolution.dtype, operands)})
               ->graph != nullptr;
  });
}

std::vector<std::string> cudnn_plans(const FloatConvolution& convolution,
                                     std::string_view device_properties, std::int64_t alignment) {
  open_cudnn();
  return guarded(to_string(convolution), [&] {
    auto properties = std::make_shared<fe::DeviceProperties>();
    check(properties->deserialize({device_properties.begin(), device_properties.end()}),
          "DeviceProperties::deserialize");
    std::vector<std::string> names;
    Plan plan = first_plan(convolution, make_graph(convolution, alignment, properties));
    names.push_back(plan.name);
    for (std::int64_t i = plan.index + 1; i < plan.graph->get_execution_plan_count(); ++i) {
      if (plan.graph->build_plan_at_index(i).is_bad()) continue;
      check(plan.graph->get_plan_name_at_index(i, names.emplace_back()), "get_plan_name_at_index");
    }
    return names;
  });
}

std::string missing_cudnn() {
  try {
    open_cudnn();
    return {};
  } catch (const BackendError& error) {
    return error.what();
  }
}

}  // namespace quanta::cuda
