#include "distributed/fashion_network.h"

#include <fmt/format.h>

#include "cli/data_folder.h"
#include "cli/saved_model.h"
#include "quanta/fusion/model_file.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::cli {
namespace {

template <typename Net>
FashionNetwork make() {
  const auto net = nn::make_module<Net>();
  net->eval();
  return {net, fusion_groups(*net)};
}

}  // namespace

std::vector<std::string> fashion_network_names() { return {"fashion_resnet", "fashion_mobilenet"}; }

FashionNetwork make_fashion_network(const std::string& name) {
  if (name == "fashion_resnet") return make<nn::models::FashionResNet>();
  if (name == "fashion_mobilenet") return make<nn::models::FashionMobileNet>();
  throw ArgumentError(
      fmt::format("--model: expected fashion_resnet or fashion_mobilenet, got {}", name));
}

std::filesystem::path fashion_weights(const std::string& name) {
  return demo_data_folder() / (name + ".safetensors");
}

std::string load_weights(nn::Module& net, const std::filesystem::path& path, FileAccess access) {
  const SafetensorsFile file = load_safetensors(path, access);
  if (is_saved_model_file(file)) {
    load_model(net, path, {}, {.access = access});
    return "saved model";
  }
  net.load_state_dict(file.tensors);
  return "float";
}

}  // namespace quanta::cli
