#include "layer_report.h"

#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <typeinfo>

#include "quanta/nn/float_functional.h"
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

// Passes everything on and remembers the first tensor; stands where an observer would.
class CapturingObserver final : public Observer {
 public:
  CapturingObserver(Capture& capture, std::string path)
      : capture_(&capture), path_(std::move(path)) {}
  std::string name() const override { return "CapturingObserver"; }
  Tensor forward(const Tensor& x) override {
    capture_->note(path_, x);
    return x;
  }
  ObservedQParams calculate_qparams() const override { return {}; }
  bool has_data() const override { return true; }
  std::shared_ptr<Observer> clone() const override {
    return std::make_shared<CapturingObserver>(*this);
  }

 private:
  Capture* capture_;
  std::string path_;
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
        std::make_shared<CapturingObserver>(capture, entry.path), observation);
  }
  model(x);
  return capture;
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

std::vector<LayerRow> capture_layers(nn::Module& fused_float, nn::Module& converted,
                                     const Tensor& x) {
  const Capture want = run_captured(fused_float, x);
  const Capture got = run_captured(converted, x);
  std::vector<LayerRow> rows;
  for (const std::string& path : got.order) {
    const Tensor& output = got.outputs.at(path);
    const auto reference = want.outputs.find(path);
    if (!output.is_quantized() || reference == want.outputs.end()) continue;
    const nn::Module& before = *fused_float.get_submodule(path);
    const nn::Module& after = *converted.get_submodule(path);
    if (typeid(before) == typeid(after)) continue;
    const Quantizer& quantizer = output.impl()->quantizer;
    rows.push_back({path, after.type_name(), quantizer.scale, quantizer.zero_point,
                    sqnr_db(reference->second, output)});
  }
  return rows;
}

}  // namespace quanta::cli
