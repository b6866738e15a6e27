#include "bench_subject.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "networks.h"
#include "on_device.h"
#include "onnx_inputs.h"
#include "quanta/fusion/graph/frozen.h"
#include "quanta/quanta.h"
#include "quanta/runtime/detail/file_memory.h"

namespace quanta::cli {
namespace {

/// Inputs to calibrate a network of random weights with.
constexpr std::int64_t kRandomCalibration = 8;

class KindSubject : public BenchSubject {
 public:
  explicit KindSubject(const BenchOptions& options)
      : kind_(network_kind(options.model)),
        device_(device_option(options.device)),
        batch_(options.batch),
        inputs_(options.input.empty() ? random_inputs(kind_, options.batch)
                                      : read_inputs(kind_, options.input)) {
    if (inputs_.size(0) < batch_) {
      throw ArgumentError(
          fmt::format("bench: --batch: expected at most the {} inputs of {}, got {}",
                      inputs_.size(0), options.input, batch_));
    }
    if (!options.input.empty()) {
      const StateDict file = read_safetensors(options.input, FileAccess::Map);
      if (const Tensor* expected = file.find("float_out")) expected_ = *expected;
    }
    operations_ = 2.0 * kind_.multiply_adds * static_cast<double>(batch_);
    make_model(options);
    move_to_device("bench", *model_, on_cpu(), device_);
    if (!options.eager) {
      frozen_ = freeze(*model_, request().front());
      model_.reset();
    }
  }

  std::vector<Tensor> request() const override { return {on_cpu().to(device_)}; }
  void run(const std::vector<Tensor>& request) const override {
    static_cast<void>(call(request.front()));
    synchronize(device_);
  }

  Tensor outputs() const override {
    std::vector<Tensor> parts;
    for (std::int64_t begin = 0; begin + batch_ <= inputs_.size(0); begin += batch_) {
      parts.push_back(call(inputs_.slice(0, begin, begin + batch_).to(device_)).cpu());
      // The figures tell of the network's memory, not of how many inputs a file holds.
      quanta::detail::release_file_memory(inputs_);
    }
    return cat(parts, 0);
  }

 private:
  void make_model(const BenchOptions& options) {
    const NetworkForm form = network_form(options.dtype);
    const bool is_random = options.weights.empty();
    Tensor calibration;
    if (!options.calib.empty()) {
      calibration = read_inputs(kind_, options.calib);
    } else if (is_random) {
      calibration = random_inputs(kind_, kRandomCalibration);
    }
    model_ = is_random ? make_random_network(kind_, form, calibration)
                       : load_network(kind_, form, options.weights, calibration);
    if (!options.save.empty()) {
      if (options.packed) static_cast<void>((*model_)(on_cpu()));
      save_model(*model_, options.save,
                 {.packed = options.packed ? SavePacked::Yes : SavePacked::No});
    }
    const std::string& file = options.save.empty() ? options.weights : options.save;
    if (!file.empty()) file_bytes_ = static_cast<double>(std::filesystem::file_size(file));
  }

  Tensor on_cpu() const {
    const Tensor x = inputs_.slice(0, 0, batch_).clone();
    return x.dim() == 4 ? x.contiguous(MemoryFormat::ChannelsLast) : x;
  }
  Tensor call(const Tensor& x) const { return model_ != nullptr ? (*model_)(x) : frozen_(x); }

  const NetworkKind& kind_;
  Device device_;
  std::int64_t batch_;
  Tensor inputs_;
  std::shared_ptr<nn::Module> model_;  // null when frozen
  FrozenModel frozen_;
};

/// The network of an ONNX file, in the arithmetic that the file asks for. Its first result counts.
class OnnxSubject : public BenchSubject {
 public:
  explicit OnnxSubject(const BenchOptions& options) : batch_(options.batch) {
    const OnnxModel file = read_onnx(options.onnx);
    file_bytes_ = static_cast<double>(std::filesystem::file_size(options.onnx));
    const std::filesystem::path beside = options.onnx + ".data";
    if (std::filesystem::exists(beside)) {
      file_bytes_ += static_cast<double>(std::filesystem::file_size(beside));
    }
    const graph::NamedTensors constants = read_constants(options.constants, file);
    const graph::Model net = graph::from_onnx(file, {.constants = constants});
    const std::vector<OnnxValue> inputs = free_inputs(file, constants);
    SizesByName sizes = read_sizes(options.sizes, inputs);
    for (const OnnxValue& input : inputs) {
      if (!options.input.empty()) {
        all_.push_back(read_input(input, options.input, sizes, {}));
        check_count(options, input, all_.back());
      } else {
        Dims dims = sizes_of(input, sizes);
        const bool is_free = input.sizes && !input.sizes->empty() && !input.sizes->front().size;
        if (!sizes.contains(input.name) && is_free) dims[0] = batch_;
        sizes[input.name] = dims;
        all_.push_back(random_input(input, sizes));
      }
    }
    has_rows_ = !options.input.empty();
    if (!options.input.empty() && options.input.ends_with(".safetensors")) {
      const StateDict tensors = read_safetensors(options.input, FileAccess::Map);
      if (const Tensor* expected = tensors.find("float_out")) expected_ = *expected;
    }
    if (options.eager) {
      model_ = std::make_unique<const graph::Model>(net);
    } else {
      frozen_ = std::make_unique<const graph::FrozenGraph>(net);
    }
  }

  std::vector<Tensor> request() const override {
    if (has_rows_) return batch_at(0);
    std::vector<Tensor> inputs;
    for (const Tensor& x : all_) inputs.push_back(x.clone());
    return inputs;
  }
  void run(const std::vector<Tensor>& request) const override { static_cast<void>(call(request)); }

  Tensor outputs() const override {
    if (all_.empty() || all_[0].dim() == 0) return call(all_);
    std::vector<Tensor> parts;
    for (std::int64_t begin = 0; begin + batch_ <= all_[0].size(0); begin += batch_) {
      parts.push_back(call(batch_at(begin)));
      for (const Tensor& input : all_) quanta::detail::release_file_memory(input);
    }
    return cat(parts, 0);
  }

 private:
  void check_count(const BenchOptions& options, const OnnxValue& input, const Tensor& x) const {
    if (x.dim() > 0 && x.size(0) >= batch_) return;
    throw ArgumentError(
        fmt::format("bench: --batch: expected at most the {} rows of '{}' in {}, got {}",
                    x.dim() == 0 ? 0 : x.size(0), input.name, options.input, batch_));
  }
  std::vector<Tensor> batch_at(std::int64_t begin) const {
    std::vector<Tensor> inputs;
    for (const Tensor& x : all_) inputs.push_back(x.slice(0, begin, begin + batch_).clone());
    return inputs;
  }
  Tensor call(const std::vector<Tensor>& inputs) const {
    return (frozen_ != nullptr ? frozen_->run(inputs) : model_->run(inputs)).front();
  }

  std::int64_t batch_;
  std::vector<Tensor> all_;
  bool has_rows_ = false;  // of a file, of which a request takes some
  std::unique_ptr<const graph::Model> model_;
  std::unique_ptr<const graph::FrozenGraph> frozen_;
};

}  // namespace

std::unique_ptr<const BenchSubject> make_bench_subject(const BenchOptions& options) {
  if (options.onnx.empty()) return std::make_unique<const KindSubject>(options);
  if (!options.device.empty() && Device::parse(options.device).is_cuda()) {
    throw UnsupportedError(
        "bench: --onnx: expected --device cpu beside it, as the constants of ONNX graphs stay on "
        "the "
        "CPU, got " +
        options.device);
  }
  if (!options.weights.empty() || !options.calib.empty() || !options.save.empty()) {
    throw ArgumentError(
        "bench: --onnx: expected no --weights, --calib or --save beside it: quanta quantize makes "
        "int8 files");
  }
  return std::make_unique<const OnnxSubject>(options);
}

}  // namespace quanta::cli
