#include "suite_network.h"

#include <cstdint>
#include <utility>
#include <vector>

#include "on_device.h"
#include "onnx_inputs.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/fusion/graph/quantize_jit.h"
#include "quanta/quanta.h"
#include "quantize_onnx.h"

namespace quanta::cli {
namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kCalibrationInputs = 8;

/// What the ops of a call have to do, as they say.
OpWork measure_work(const std::function<void()>& call) {
  const Profiler profiler;
  call();
  OpWork work;
  for (const ModuleProfile& module : profiler.modules()) {
    work.multiply_adds += module.work.multiply_adds;
    work.bytes += module.work.bytes;
  }
  return work;
}

double state_bytes(const nn::Module& model) {
  double bytes = 0.0;
  for (const auto& [name, tensor] : model.state_dict()) {
    bytes += static_cast<double>(tensor.nbytes());
  }
  return bytes;
}

class KindNetwork : public SuiteNetwork {
 public:
  KindNetwork(const NetworkKind& kind, Device device) : kind_(kind), device_(device) {
    const NetworkForm form = kind.is_static ? NetworkForm::Int8 : NetworkForm::DynamicInt8;
    manual_seed(kSeed);
    float_ = make_random_network(kind, NetworkForm::Float32, {});
    manual_seed(kSeed);
    quantized_ = make_random_network(kind, form, random_inputs(kind, kCalibrationInputs));
    const Tensor x = random_inputs(kind, 1);
    move_to_device("networks", *quantized_, x, device);
    if (missing_kernels(*float_, x, device).empty()) {
      float_->to(device);
      float_device_ = device;
    }
  }

  std::string name() const override { return std::string(kind_.name); }
  std::string dtype() const override { return kind_.is_static ? "int8" : "dynamic-int8"; }
  SuiteSide in_float(int batch) const override { return side(float_, float_device_, batch); }
  SuiteSide quantized(int batch) const override { return side(quantized_, device_, batch); }
  double multiply_adds() const override { return kind_.multiply_adds; }
  double moved_bytes(int batch) const override {
    const Tensor x = random_inputs(kind_, batch).to(device_);
    return static_cast<double>(measure_work([&] { static_cast<void>((*quantized_)(x)); }).bytes);
  }
  double weight_bytes() const override { return state_bytes(*quantized_); }

 private:
  SuiteSide side(const std::shared_ptr<nn::Module>& model, Device device, int batch) const {
    const Tensor x = random_inputs(kind_, batch).to(device);
    try {
      return {[frozen = freeze(*model, x), x, device] {
                static_cast<void>(frozen(x));
                synchronize(device);
              },
              true, device};
    } catch (const UnsupportedError&) {
      return {[model, x, device] {
                static_cast<void>((*model)(x));
                synchronize(device);
              },
              false, device};
    }
  }

  const NetworkKind& kind_;
  Device device_;
  Device float_device_;
  std::shared_ptr<nn::Module> float_, quantized_;
};

class OnnxNetwork : public SuiteNetwork {
 public:
  OnnxNetwork(std::string name, const OnnxModel& file, const std::string& sizes)
      : name_(std::move(name)),
        float_(graph::from_onnx(file)),
        inputs_(free_inputs(file)),
        sizes_(read_sizes({sizes}, inputs_)),
        quantized_(quantize_static(float_, {}, random_samples())),
        fast_float_(float_),
        fast_quantized_(quantized_),
        multiply_adds_(static_cast<double>(work(float_, 1).multiply_adds)) {}

  std::string name() const override { return name_; }
  std::string dtype() const override { return "int8"; }
  SuiteSide in_float(int batch) const override { return side(fast_float_, batch); }
  SuiteSide quantized(int batch) const override { return side(fast_quantized_, batch); }
  double multiply_adds() const override { return multiply_adds_; }
  double moved_bytes(int batch) const override {
    return static_cast<double>(work(quantized_, batch).bytes);
  }
  double weight_bytes() const override { return state_bytes(quantized_); }

 private:
  Samples random_samples() const {
    return Samples::open("random", inputs_, sizes_, {}, 1, kCalibrationInputs);
  }
  std::vector<Tensor> inputs(int batch) const {
    std::vector<Tensor> result;
    for (const OnnxValue& input : inputs_) {
      Dims dims = sizes_of(input, sizes_);
      if (!dims.empty()) dims[0] = batch;
      result.push_back(random_input(input, {{input.name, dims}}));
    }
    return result;
  }
  OpWork work(const graph::Model& model, int batch) const {
    return measure_work([&] { static_cast<void>(model.run(inputs(batch))); });
  }
  SuiteSide side(const graph::FrozenGraph& frozen, int batch) const {
    const std::function<void()> run = [&frozen, x = inputs(batch)] {
      static_cast<void>(frozen.run(x));
    };
    run();
    return {run, frozen.info().eager_nodes == 0};
  }

  std::string name_;
  graph::Model float_;
  std::vector<OnnxValue> inputs_;
  SizesByName sizes_;
  graph::Model quantized_;
  graph::FrozenGraph fast_float_, fast_quantized_;
  double multiply_adds_;
};

}  // namespace

std::unique_ptr<const SuiteNetwork> make_suite_network(const NetworkKind& kind, Device device) {
  return std::make_unique<const KindNetwork>(kind, device);
}

std::unique_ptr<const SuiteNetwork> make_suite_network(const std::string& name,
                                                       const std::string& path,
                                                       const std::string& sizes) {
  return std::make_unique<const OnnxNetwork>(name, read_onnx(path), sizes);
}

}  // namespace quanta::cli
