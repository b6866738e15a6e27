#include "layer_report.h"

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <typeinfo>

#include "quanta/nn/float_functional.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/ops/quantize.h"

namespace quanta::cli {
namespace {

struct Capture {
  std::vector<std::string> order;
  std::map<std::string, Tensor> outputs;

  void note(const std::string& path, const Tensor& output) {
    if (outputs.emplace(path, output).second) order.push_back(path);
  }
};

// Passes on what the observer in whose place it stands makes of a tensor (there may be none), and
// remembers the first one.
class CapturingObserver final : public Observer {
 public:
  CapturingObserver(Capture& capture, std::string path, std::shared_ptr<Observer> inner)
      : capture_(&capture), path_(std::move(path)), inner_(std::move(inner)) {}
  std::string name() const override { return "CapturingObserver"; }
  Tensor forward(const Tensor& x) override {
    const Tensor y = inner_ == nullptr ? x : inner_->forward(x);
    capture_->note(path_, y);
    return y;
  }
  void update(const Tensor& x) override { static_cast<void>(forward(x)); }
  ObservedQParams calculate_qparams() const override { return {}; }
  bool has_data() const override { return true; }
  void reset() override {}

 protected:
  std::shared_ptr<Collector> copy() const override { return copy_of(*this); }

 private:
  Capture* capture_;
  std::string path_;
  std::shared_ptr<Observer> inner_;
};

Capture run_captured(nn::Module& model, const Tensor& x) {
  Capture capture;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    if (entry.path.empty()) continue;
    // FloatFunctional and QFunctional are called by their own functions, not by forward.
    const auto observation = dynamic_cast<const nn::FloatFunctional*>(entry.module) != nullptr
                                 ? nn::Module::Observation::Explicit
                                 : nn::Module::Observation::Output;
    entry.module->set_activation_post_process(
        std::make_shared<CapturingObserver>(capture, entry.path,
                                            entry.module->activation_post_process()),
        observation);
  }
  model(x);
  return capture;
}

// The paths of modules whose results are fake-quantized.
std::set<std::string> fake_quantized_modules(const nn::Module& model) {
  std::set<std::string> paths;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    const Observer* observer = entry.module->activation_post_process().get();
    if (dynamic_cast<const FakeQuantizeBase*>(observer) != nullptr) paths.insert(entry.path);
  }
  return paths;
}

}  // namespace

double sqnr_db(const Tensor& reference, const Tensor& value) {
  const std::vector<float> want = dequantize(reference).to_float_vector();
  const std::vector<float> got = dequantize(value).to_float_vector();
  double signal = 0.0;
  double noise = 0.0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double reference_value = want[i];
    const double error = reference_value - static_cast<double>(got[i]);
    signal += reference_value * reference_value;
    noise += error * error;
  }
  if (noise == 0.0) return std::numeric_limits<double>::infinity();
  return 10.0 * std::log10(signal / noise);
}

std::vector<LayerRow> capture_layers(nn::Module& fused_float, nn::Module& quantized,
                                     const Tensor& x) {
  const std::set<std::string> simulated = fake_quantized_modules(quantized);
  const Capture want = run_captured(fused_float, x);
  const Capture got = run_captured(quantized, x);
  std::vector<LayerRow> rows;
  for (const std::string& path : got.order) {
    const Tensor& output = got.outputs.at(path);
    const auto reference = want.outputs.find(path);
    if (reference == want.outputs.end()) continue;
    const nn::Module& before = *fused_float.get_submodule(path);
    const nn::Module& after = *quantized.get_submodule(path);
    LayerRow row{
        .path = path, .type = after.type_name(), .sqnr_db = sqnr_db(reference->second, output)};
    if (output.is_quantized() && typeid(before) != typeid(after)) {
      row.scale = output.impl()->quantizer.scale;
      row.zero_point = output.impl()->quantizer.zero_point;
    } else if (!simulated.contains(path)) {
      continue;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace quanta::cli
