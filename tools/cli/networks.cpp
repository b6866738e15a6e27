#include "networks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <typeinfo>

#include "quanta/quanta.h"
#include "quanta/tools/networks/crnn.h"
#include "quanta/tools/networks/detector.h"
#include "quanta/tools/networks/two_tower.h"

namespace quanta::cli {
namespace {

namespace models = nn::models;

// In the order of NetworkForm.
constexpr std::array<std::string_view, 4> kFormNames{"float32", "int8", "dynamic-int8",
                                                     "dynamic-int8-attention"};

using Groups = std::vector<std::vector<std::string>>;

template <typename Net>
Groups find_groups(const nn::Module& model) {
  return fusion_groups(dynamic_cast<const Net&>(model));
}
Groups no_groups(const nn::Module&) { return {}; }

// A network that a factory function returns by value.
template <typename Net>
std::shared_ptr<nn::Module> boxed(Net net) {
  return nn::make_module<Net>(std::move(net));
}

constexpr nn::RecurrentOptions kRecurrent{
    .input_size = 256, .hidden_size = 512, .num_layers = 2, .batch_first = true};
constexpr std::int64_t kClasses = 1000;

nn::models::MobileNetV2Options mobilenet_v2_options() {
  return {.activation = models::MobileNetActivation::ReLU};
}

std::vector<NetworkKind> make_network_kinds() {
  const Dims image{3, 224, 224};
  return {
      {"resnet18", image, 1814.1e6, true, false, [] { return boxed(models::resnet18()); },
       find_groups<models::ResNet>},
      {"resnet50", image, 4089.2e6, true, false, [] { return boxed(models::resnet50()); },
       find_groups<models::ResNet>},
      {"mobilenet_v2", image, 300.8e6, true, false,
       [] { return boxed(models::MobileNetV2(mobilenet_v2_options())); },
       find_groups<models::MobileNetV2>},
      {"mobilenet_v3_large", image, 216.6e6, true, false,
       [] { return boxed(models::mobilenet_v3_large()); }, find_groups<models::MobileNetV3>},
      {"lstm",
       {64, 256},
       235.4e6,
       false,
       true,
       [] { return boxed(models::LstmClassifier(kRecurrent, kClasses)); },
       no_groups},
      {"gru",
       {64, 256},
       176.7e6,
       false,
       true,
       [] { return boxed(models::GruClassifier(kRecurrent, kClasses)); },
       no_groups},
      {"bert4",
       {128, 768},
       3727.6e6,
       false,
       true,
       [] { return boxed(models::EncoderClassifier()); },
       no_groups},
      {"efficientnet_b0", image, 385.9e6, true, false,
       [] { return boxed(models::efficientnet_b0()); }, find_groups<models::EfficientNet>},
      {"yolo_n",
       {3, 320, 320},
       558.5e6,
       true,
       false,
       [] { return boxed(networks::Detector()); },
       find_groups<networks::Detector>},
      {"crnn",
       {1, 32, 160},
       1111.0e6,
       true,
       true,
       [] { return boxed(networks::Crnn()); },
       find_groups<networks::Crnn>},
      {"vit_tiny", image, 1253.7e6, false, true, [] { return boxed(models::VisionTransformer()); },
       no_groups},
      {"bert_base",
       {128, 768},
       11175.0e6,
       false,
       true,
       [] { return boxed(models::EncoderClassifier(12)); },
       no_groups},
      {"distilbert_16",
       {16, 768},
       683.2e6,
       false,
       true,
       [] { return boxed(models::EncoderClassifier(6)); },
       no_groups},
      {"distilbert_512",
       {512, 768},
       24160.6e6,
       false,
       true,
       [] { return boxed(models::EncoderClassifier(6)); },
       no_groups},
      {"mlp",
       {784},
       1.862e6,
       true,
       true,
       [] { return boxed(models::Mlp()); },
       find_groups<models::Mlp>},
      {"two_tower",
       {1024},
       1.393e6,
       true,
       true,
       [] { return boxed(networks::TwoTower()); },
       find_groups<networks::TwoTower>},
  };
}

void convert_network(nn::Module& model, const NetworkKind& kind, const Tensor& calibration) {
  if (!calibration.defined()) {
    throw ArgumentError(fmt::format(
        "bench: --calib: expected a file of inputs to calibrate {} with (or --weights with a model "
        "that is quantized already), got none",
        kind.name));
  }
  prepare_(model, get_default_qconfig("x86"));
  constexpr std::int64_t kBatch = 8;
  for (std::int64_t begin = 0; begin < calibration.size(0); begin += kBatch) {
    model(calibration.slice(0, begin, begin + kBatch));
  }
  convert_(model);
}

bool has_dynamic_tail(const nn::Module& model) {
  const auto modules = model.named_modules();
  return std::any_of(modules.begin(), modules.end(), [](const nn::Module::NamedModule& entry) {
    return typeid(*entry.module) == typeid(nn::LSTM);
  });
}

bool is_dynamic(NetworkForm form) {
  return form == NetworkForm::DynamicInt8 || form == NetworkForm::DynamicInt8Attention;
}

void quantize_network(nn::Module& model, const NetworkKind& kind, NetworkForm form,
                      const Tensor& calibration) {
  if (form == NetworkForm::Int8) convert_network(model, kind, calibration);
  // Layers that a static network has set apart, behind its DeQuantStub.
  const bool has_tail = form == NetworkForm::Int8 && has_dynamic_tail(model);
  if (is_dynamic(form) || has_tail) quantize_dynamic_(model);
  if (form == NetworkForm::DynamicInt8Attention) nn::set_attention_dtype(model, DType::QInt8);
}

void check_form(const NetworkKind& kind, NetworkForm form) {
  const bool possible = form == NetworkForm::Float32 ||
                        (form == NetworkForm::Int8 ? kind.is_static : kind.is_dynamic);
  if (possible) return;
  throw ArgumentError(fmt::format("bench: --dtype: expected float32 or {} for {}, got {}",
                                  kind.is_static ? "int8" : "dynamic-int8", kind.name,
                                  to_string(form)));
}

// Without starting values: the weights come from a file.
std::shared_ptr<nn::Module> make_network(const NetworkKind& kind) {
  const nn::SkipInit scope;
  return kind.make();
}

}  // namespace

NetworkForm network_form(std::string_view text) {
  for (std::size_t i = 0; i < kFormNames.size(); ++i) {
    if (kFormNames[i] == text) return static_cast<NetworkForm>(i);
  }
  throw ArgumentError(
      fmt::format("bench: --dtype: expected one of {}, got {}", fmt::join(kFormNames, ", "), text));
}

std::string_view to_string(NetworkForm form) { return kFormNames[static_cast<std::size_t>(form)]; }

const std::vector<NetworkKind>& network_kinds() {
  static const std::vector<NetworkKind> kinds = make_network_kinds();
  return kinds;
}

const NetworkKind& network_kind(std::string_view name) {
  std::vector<std::string_view> names;
  for (const NetworkKind& kind : network_kinds()) {
    if (kind.name == name) return kind;
    names.push_back(kind.name);
  }
  throw ArgumentError(
      fmt::format("bench: --model: expected one of {}, got {}", fmt::join(names, ", "), name));
}

std::shared_ptr<nn::Module> load_float_network(const NetworkKind& kind,
                                               const std::filesystem::path& weights) {
  std::shared_ptr<nn::Module> model = make_network(kind);
  load_state_dict(*model, read_safetensors(weights));
  model->eval();
  fuse_modules(*model, kind.fusion_groups(*model));
  return model;
}

std::shared_ptr<nn::Module> make_random_network(const NetworkKind& kind, NetworkForm form,
                                                const Tensor& calibration) {
  check_form(kind, form);
  std::shared_ptr<nn::Module> model = kind.make();
  model->eval();
  fuse_modules(*model, kind.fusion_groups(*model));
  quantize_network(*model, kind, form, calibration);
  return model;
}

std::shared_ptr<nn::Module> load_saved_network(const NetworkKind& kind,
                                               const std::filesystem::path& path,
                                               FileAccess access) {
  std::shared_ptr<nn::Module> model = make_network(kind);
  model->eval();
  load_model(*model, path, {}, {.access = access});
  return model;
}

std::shared_ptr<nn::Module> load_network(const NetworkKind& kind, NetworkForm form,
                                         const std::filesystem::path& weights,
                                         const Tensor& calibration) {
  check_form(kind, form);
  if (is_saved_model(weights)) return load_saved_network(kind, weights);
  std::shared_ptr<nn::Module> model = load_float_network(kind, weights);
  quantize_network(*model, kind, form, calibration);
  return model;
}

Tensor random_inputs(const NetworkKind& kind, std::int64_t count) {
  Dims sizes{count};
  for (const std::int64_t size : kind.sample) sizes.push_back(size);
  constexpr std::uint64_t kSeed = 1;
  Generator generator(kSeed);
  const Tensor x = randn(sizes, generator);
  return x.dim() == 4 ? x.contiguous(MemoryFormat::ChannelsLast) : x;
}

bool is_saved_model(const std::filesystem::path& path) {
  return load_safetensors(path, FileAccess::Map).metadata.contains("quanta.modules");
}

Tensor read_inputs(const NetworkKind& kind, const std::filesystem::path& path) {
  const StateDict tensors = read_safetensors(path, FileAccess::Map);
  const Tensor* x = tensors.find("x");
  if (x == nullptr && tensors.size() == 1) x = &tensors.begin()->second;
  const Dims& sample = kind.sample;
  if (x != nullptr && x->dtype() == DType::Float32 &&
      x->dim() == static_cast<std::int64_t>(sample.size()) + 1 &&
      std::equal(sample.begin(), sample.end(), x->sizes().begin() + 1) && x->size(0) > 0) {
    return *x;
  }
  throw ArgumentError(fmt::format(
      "bench: {}: expected a Float32 tensor x of sizes [count, {}] for {}, got {}", path.string(),
      fmt::join(sample.begin(), sample.end(), ", "), kind.name,
      x == nullptr ? "none" : fmt::format("{} {}", torch_name(x->dtype()), to_string(x->sizes()))));
}

}  // namespace quanta::cli
