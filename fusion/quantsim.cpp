#include "quanta/fusion/quantsim.h"

#include <algorithm>
#include <span>
#include <utility>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/aimet/affine_quantizer.h"
#include "quanta/nn/aimet/float_quantizer.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/detail/child_path.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/autograd.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/detail/text_file.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::aimet::quantsim {
namespace {

using nn::Module;
using nn::detail::child_path;

constexpr std::string_view kOp = "QuantizationSimModel";

std::shared_ptr<EncodingAnalyzer> analyzer_for(const QuantSimConfig& config, const Dims& shape) {
  switch (config.scheme) {
    case QuantScheme::MinMax:
      return std::make_shared<MinMaxAnalyzer>(shape);
    case QuantScheme::TfEnhanced:
      return std::make_shared<SqnrAnalyzer>(SqnrAnalyzerOptions::tf_enhanced(shape));
    case QuantScheme::Percentile:
      break;
  }
  return std::make_shared<PercentileAnalyzer>(
      PercentileAnalyzerOptions{{.shape = shape}, config.percentile});
}

ObserverFactory factory(const QuantSimConfig& config, std::int64_t bitwidth, bool symmetric,
                        const Dims& shape, std::string_view what) {
  const QuantizeDequantize quantizer({.shape = shape,
                                      .bitwidth = bitwidth,
                                      .symmetric = symmetric,
                                      .analyzer = analyzer_for(config, shape)});
  return AimetFakeQuantize::with_args(
      fmt::format("{} {} {}", what, quantizer.to_string(), quantizer.analyzer()->name()),
      quantizer);
}

// The weight of a layer that has an output channel in its first axis, of the layer itself or of the
// one that begins a fused module.
const Tensor* layer_weight(const Module& module) {
  if (const auto* conv = dynamic_cast<const nn::Conv1d*>(&module)) return &conv->weight;
  if (const auto* conv = dynamic_cast<const nn::Conv2d*>(&module)) return &conv->weight;
  if (const auto* conv = dynamic_cast<const nn::Conv3d*>(&module)) return &conv->weight;
  if (const auto* linear = dynamic_cast<const nn::Linear*>(&module)) return &linear->weight;
  if (!module.has_child("0")) return nullptr;
  const std::shared_ptr<Module> first = module.get_submodule("0");
  return first->has_child("0") ? nullptr : layer_weight(*first);
}

// What the overrides say of a path: those of the longest one that is the path or above it.
QuantSimOverride settings_of(const QuantSimConfig& config, const std::string& path) {
  QuantSimOverride found;
  std::size_t length = 0;
  for (const auto& [above, settings] : config.overrides) {
    const bool is_within =
        path == above ||
        (path.starts_with(above) && path.size() > above.size() && path[above.size()] == '.');
    if (!is_within || above.size() < length) continue;
    found = settings;
    length = above.size();
  }
  return found;
}

void check(const QuantSimConfig& config) {
  const auto check_bits = [](std::string_view name, std::int64_t bits) {
    QUANTA_CHECK(bits >= 2 && bits <= 32, "{}: {}: expected 2..32, got {}", kOp, name, bits);
  };
  check_bits("param_bitwidth", config.param_bitwidth);
  check_bits("output_bitwidth", config.output_bitwidth);
  for (const auto& [path, settings] : config.overrides) {
    QUANTA_CHECK(!path.empty(), "{}: overrides: expected the path of a module, got \"\"", kOp);
    check_bits("param_bitwidth", settings.param_bitwidth.value_or(8));
    check_bits("output_bitwidth", settings.output_bitwidth.value_or(8));
  }
}

// Whether a weight of these sizes can have the scales of an encoding.
bool fits(const Encoding& encoding, const Dims& sizes) {
  const Tensor& scale = encoding.scale();
  if (scale.dim() > static_cast<std::int64_t>(sizes.size())) return false;
  const Dims& blocks = encoding.block_size();
  if (!blocks.empty() && blocks.size() != scale.sizes().size()) return false;
  const std::size_t first = sizes.size() - scale.sizes().size();
  for (std::size_t d = 0; d < scale.sizes().size(); ++d) {
    const std::int64_t count = std::max<std::int64_t>(scale.sizes()[d], 1);
    const std::int64_t size = sizes[first + d];
    const std::int64_t block = blocks.empty() ? 0 : blocks[d];
    if (block > 0 ? count * block != size : size % count != 0) return false;
    if (block == 0 && count != 1 && count != size) return false;
  }
  return true;
}

}  // namespace

void prepare_(Module& model, const QuantSimConfig& config) {
  check(config);
  for (const auto& [path, settings] : config.overrides) {
    static_cast<void>(model.get_submodule(path));
  }
  const auto qconfig_for = [&](const std::string& path,
                               const Dims& shape) -> std::optional<QConfig> {
    const QuantSimOverride own = settings_of(config, path);
    if (own.excluded) return std::nullopt;
    return QConfig{factory(config, own.output_bitwidth.value_or(config.output_bitwidth),
                           config.symmetric_outputs, {}, "output"),
                   factory(config, own.param_bitwidth.value_or(config.param_bitwidth),
                           config.symmetric_params, shape, "param")};
  };
  QConfigMapping qconfigs(*qconfig_for("", {}));
  // Tables of embeddings are looked up, not multiplied with: they stay as they are.
  qconfigs.set_object_type<nn::Embedding>(std::nullopt);
  qconfigs.set_object_type<nn::EmbeddingBag>(std::nullopt);
  for (const auto& [path, settings] : config.overrides) {
    qconfigs.set_module_name(path, qconfig_for(path, {}));
  }
  for (const Module::NamedModule& entry : model.named_modules()) {
    const Tensor* weight = entry.path.empty() ? nullptr : layer_weight(*entry.module);
    if (weight == nullptr || !config.per_channel) continue;
    Dims shape = Dims::filled(weight->sizes().size(), 1);
    shape[0] = weight->size(0);
    qconfigs.set_module_name(entry.path, qconfig_for(entry.path, shape));
  }
  model.train();  // prepare_qat asks for it; nothing runs before eval()
  prepare_qat_(model, qconfigs);
  model.eval();
  for (const NamedQuantizer& named : named_quantizers(model)) {
    named.quantizer->disable_observer();
    named.quantizer->enable_fake_quant();
  }
}

std::vector<NamedQuantizer> named_quantizers(const Module& model) {
  std::vector<NamedQuantizer> result;
  for (const Module::NamedModule& entry : model.named_modules()) {
    for (const Module::NamedObserver& named : entry.module->named_observers()) {
      auto quantizer = std::dynamic_pointer_cast<AimetFakeQuantize>(named.observer);
      if (quantizer == nullptr) continue;
      if (named.name != "weight_fake_quant") {
        const std::string_view name =
            named.name == "activation_post_process" ? std::string_view("output") : named.name;
        result.push_back({child_path(entry.path, name), false, std::nullopt, std::move(quantizer)});
        continue;
      }
      std::optional<Dims> shape;
      for (const auto& [path, tensor] : entry.module->named_parameters()) {
        if (path == "weight") shape = tensor.sizes();
      }
      result.push_back({child_path(entry.path, "weight"), true, shape, std::move(quantizer)});
    }
  }
  return result;
}

void compute_encodings(Module& model, const Calibrate& calibrate) {
  QUANTA_CHECK(calibrate, "{}: compute_encodings: expected a function, got none", kOp);
  const std::vector<NamedQuantizer> quantizers = named_quantizers(model);
  const autograd::NoGradGuard no_grad;
  const auto watch = [&](bool on) {
    for (const NamedQuantizer& named : quantizers) {
      named.quantizer->enable_observer(on);
      named.quantizer->enable_fake_quant(!on);
    }
  };
  const auto drop = [&] {
    for (const NamedQuantizer& named : quantizers) named.quantizer->cancel_scope();
  };
  struct Switches {
    bool observer, fake_quant;
  };
  std::vector<Switches> before;
  for (const NamedQuantizer& named : quantizers) {
    before.push_back(
        {named.quantizer->is_observer_enabled(), named.quantizer->is_fake_quant_enabled()});
  }
  drop();
  watch(true);
  try {
    calibrate(model);
    // All ranges before any is written.
    std::string missing;
    for (const NamedQuantizer& named : quantizers) {
      if (!named.quantizer->gather()) missing += (missing.empty() ? "" : ", ") + named.name;
    }
    QUANTA_CHECK(
        missing.empty(),
        "{}: compute_encodings: expected data for every quantizer (a module that is not used "
        "is excluded by an override), got none at {}",
        kOp, missing);
  } catch (...) {
    drop();
    for (std::size_t i = 0; i < quantizers.size(); ++i) {
      quantizers[i].quantizer->enable_observer(before[i].observer);
      quantizers[i].quantizer->enable_fake_quant(before[i].fake_quant);
    }
    throw;
  }
  watch(false);
  for (const NamedQuantizer& named : quantizers) static_cast<void>(named.quantizer->has_data());
}

EncodingFile encodings(const Module& model, EncodingVersion version) {
  EncodingFile file;
  file.version = version;
  for (const NamedQuantizer& named : named_quantizers(model)) {
    if (!named.quantizer->has_data()) continue;
    EncodingPtr encoding = named.quantizer->quantizer().encoding();
    (named.is_param ? file.params : file.activations)
        .push_back({named.name, std::move(encoding), named.input_shape});
  }
  return file;
}

namespace {

// One that gives the encoding and goes on as the one before it.
std::shared_ptr<Quantizer> successor(const Quantizer& before, const Encoding& encoding) {
  std::shared_ptr<Quantizer> after = quantizer_from(encoding);
  after->use_analyzer_of(before);
  const std::vector<Tensor> parameters = before.parameters();
  const bool is_trained = std::any_of(parameters.begin(), parameters.end(),
                                      [](const Tensor& one) { return one.requires_grad(); });
  if (is_trained) after->requires_grad_();
  return after;
}

void read_encodings(Module& model, const std::filesystem::path& file) {
  const std::string text =
      quanta::detail::read_text_file(file, fmt::format("{}: load_encodings", kOp));
  std::map<std::string, Dims> shapes;
  for (const NamedQuantizer& named : named_quantizers(model)) {
    if (named.input_shape.has_value()) shapes.emplace(named.name, *named.input_shape);
  }
  load_encodings(model, encoding_file_from_json(text, shapes));
}

}  // namespace

void load_encodings(Module& model, const EncodingFile& file) {
  const std::vector<NamedQuantizer> quantizers = named_quantizers(model);
  std::vector<std::pair<AimetFakeQuantize*, std::shared_ptr<Quantizer>>> changes;
  std::string unknown;
  for (const auto* entries : {&file.activations, &file.params}) {
    for (const NamedEncoding& entry : *entries) {
      const auto found =
          std::find_if(quantizers.begin(), quantizers.end(),
                       [&](const NamedQuantizer& named) { return named.name == entry.name; });
      if (found == quantizers.end()) {
        unknown += (unknown.empty() ? "" : ", ") + entry.name;
        continue;
      }
      QUANTA_CHECK(entry.encoding != nullptr,
                   "{}: load_encodings: {}: expected an encoding, got none", kOp, entry.name);
      QUANTA_CHECK(!found->input_shape || fits(*entry.encoding, *found->input_shape),
                   "{}: load_encodings: {}: expected scales for {}, got {}", kOp, entry.name,
                   *found->input_shape, entry.encoding->scale().sizes());
      const bool is_single =
          entry.encoding->scale().numel() == 1 && entry.encoding->block_size().empty();
      QUANTA_CHECK(found->is_param || is_single,
                   "{}: load_encodings: {}: expected one scale for a result, got {} for blocks {}",
                   kOp, entry.name, entry.encoding->scale().sizes(), entry.encoding->block_size());
      changes.emplace_back(found->quantizer.get(),
                           successor(found->quantizer->quantizer(), *entry.encoding));
    }
  }
  QUANTA_CHECK(unknown.empty(), "{}: load_encodings: expected names of quantizers, got {}", kOp,
               unknown);
  for (auto& [fake, quantizer] : changes) {
    fake->set_quantizer(*quantizer);
    fake->disable_observer();
    fake->enable_fake_quant();
  }
}

StateDict float_state(const Module& model) {
  std::vector<std::string> quantizers;
  for (const Module::NamedModule& entry : model.named_modules()) {
    for (const Module::NamedObserver& named : entry.module->named_observers()) {
      quantizers.push_back(child_path(entry.path, named.name) + ".");
    }
  }
  StateDict state;
  for (const auto& [name, tensor] : model.state_dict()) {
    const bool is_quantizer =
        std::any_of(quantizers.begin(), quantizers.end(),
                    [&name = name](const std::string& prefix) { return name.starts_with(prefix); });
    if (!is_quantizer) state.set(name, tensor);
  }
  return state;
}

void require_convertible(const Module& model) {
  std::string others;
  for (const NamedQuantizer& named : named_quantizers(model)) {
    const AimetFakeQuantize& fake = *named.quantizer;
    // Int8 modules clip their results at the ends of QUInt8 alone.
    const bool is_whole = fake.quant_min() == 0 && fake.quant_max() == 255;
    if (named.is_param ? fake.dtype() == DType::QInt8 : fake.dtype() == DType::QUInt8 && is_whole) {
      continue;
    }
    others += fmt::format("\n  {}: {}", named.name, named.quantizer->quantizer().to_string());
  }
  QUANTA_SUPPORTED(others.empty(),
                   "{}: convert: expected weights of up to 8 signed bits with one scale or one for "
                   "each channel, and results of 8 unsigned bits, got:{}",
                   kOp, others);
}

void write_files(const Module& model, const std::filesystem::path& folder, std::string_view prefix,
                 EncodingVersion version) {
  // The text first: what cannot be written as this version leaves no file.
  const std::string text = to_json(encodings(model, version));
  const auto with = [&](const char* end) { return folder / (std::string(prefix) + end); };
  write_safetensors(with(".safetensors"), float_state(model));
  write_file_atomically(with(".encodings"),
                        [&](const auto& sink) { sink(std::as_bytes(std::span(text))); });
}

void read_file(Module& model, const std::filesystem::path& file) {
  const std::string where = fmt::format("{}: load_encodings: {}", kOp, file.string());
  quanta::detail::reading(where, [&] { read_encodings(model, file); });
}

void convert_(Module& model) {
  require_convertible(model);
  quanta::convert_(model);
}

}  // namespace quanta::aimet::quantsim
