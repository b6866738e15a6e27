#include "quanta/fusion/detail/layers_to_compare.h"

#include <set>
#include <typeinfo>

#include "quanta/nn/misc.h"
#include "quanta/observers/fake_quantize.h"
#include "quanta/runtime/check.h"

namespace quanta::detail {
namespace {

// The paths of modules whose results are fake-quantized.
std::set<std::string> fake_quantized_modules(const nn::Module& model) {
  std::set<std::string> paths;
  for (const nn::Module::NamedModule& entry : model.named_modules()) {
    const Observer* observer = entry.module->activation_post_process().get();
    if (dynamic_cast<const FakeQuantizeBase*>(observer) != nullptr) paths.insert(entry.path);
  }
  return paths;
}

bool is_identity(const nn::Module& module) {
  return dynamic_cast<const nn::Identity*>(&module) != nullptr;
}

}  // namespace

std::map<std::string, LayerTypes> layers_to_compare(std::string_view op,
                                                    const nn::Module& float_model,
                                                    const nn::Module& quantized_model) {
  const std::set<std::string> simulated = fake_quantized_modules(quantized_model);
  std::map<std::string, const nn::Module*> before;
  for (const auto& entry : float_model.named_modules()) before[entry.path] = entry.module;
  std::map<std::string, LayerTypes> layers;
  for (const auto& entry : quantized_model.named_modules()) {
    const auto found = before.find(entry.path);
    if (entry.path.empty() || found == before.end()) continue;
    const nn::Module& layer = *found->second;
    QUANTA_CHECK(!is_identity(*entry.module) || is_identity(layer),
                 "{}: float_model: expected it fused as the quantized model was, got a "
                 "{} at {}, where the quantized model has nothing any more (fuse_modules)",
                 op, layer.type_name(), entry.path);
    if (typeid(layer) == typeid(*entry.module) && !simulated.contains(entry.path)) continue;
    layers[entry.path] = {.in_float = layer.type_name(), .quantized = entry.module->type_name()};
  }
  return layers;
}

void check_calls(std::string_view op, const std::string& path, std::size_t in_float,
                 std::size_t quantized) {
  QUANTA_CHECK(quantized == in_float,
               "{}: quantized_model: expected it to call {} as often as the float model does, {} "
               "times, got {}",
               op, path, in_float, quantized);
}

void check_result_sizes(std::string_view op, const std::string& path, const Dims& in_float,
                        const Dims& quantized) {
  QUANTA_CHECK(quantized == in_float,
               "{}: quantized_model: expected results of {} with the float model's sizes {}, got "
               "{}",
               op, path, to_string(in_float), to_string(quantized));
}

}  // namespace quanta::detail
