// What a BertModel and a SentenceEncoder read from a Hugging Face directory.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "quanta/nn/models/bert.h"
#include "quanta/nn/skip_init.h"
#include "quanta/ops/activation.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/compare.h"
#include "quanta/ops/reduce.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/defined_state.h"
#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/detail/reading.h"
#include "quanta/runtime/pt_file.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::nn::models {
namespace {

namespace fs = std::filesystem;
using quanta::detail::Json;

/// An object of a JSON file and its name, for messages.
class Settings {
 public:
  Settings(std::string_view text, std::string name)
      : json_(quanta::detail::parse_json(text, name)), name_(std::move(name)) {
    if (json_.as_object() == nullptr) {
      throw FileError(fmt::format("{}: expected an object, got {}", name_, json_.kind()));
    }
  }
  static Settings read(const fs::path& path) {
    const auto file = quanta::detail::FileBytes::open(path, "read_config");
    const std::span<const std::byte> bytes = file->bytes();
    return {{reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string()};
  }

  [[noreturn]] void fail(std::string_view member, std::string_view expected,
                         std::string_view got) const {
    throw FileError(fmt::format("{}: {}: expected {}, got {}", name_, member, expected, got));
  }
  /// Null when it is not there or null.
  const Json* find(std::string_view member) const {
    const Json* value = json_.find(member);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  std::optional<std::int64_t> size(std::string_view member) const {
    // Far beyond any model, and products of two do not overflow.
    constexpr std::int64_t kLargest = std::int64_t{1} << 30;
    const Json* value = find(member);
    if (value == nullptr) return {};
    const std::int64_t* number = value->as_int();
    if (number == nullptr) fail(member, "a whole number", value->kind());
    if (*number < 1 || *number > kLargest) {
      fail(member, fmt::format("1..{}", kLargest), std::to_string(*number));
    }
    return *number;
  }
  std::int64_t required_size(std::string_view member) const {
    const std::optional<std::int64_t> value = size(member);
    if (!value) fail(member, "a whole number", "none");
    return *value;
  }
  std::optional<std::string> text(std::string_view member) const {
    const Json* value = find(member);
    if (value == nullptr) return {};
    if (value->as_string() == nullptr) fail(member, "a string", value->kind());
    return *value->as_string();
  }
  std::optional<bool> flag(std::string_view member) const {
    const Json* value = find(member);
    if (value == nullptr) return {};
    if (value->as_bool() == nullptr) fail(member, "true or false", value->kind());
    return *value->as_bool();
  }

 private:
  Json json_;
  std::string name_;
};

BertActivation parse_activation(const Settings& settings) {
  const std::string name = settings.text("hidden_act").value_or("gelu");
  if (name == "gelu") return BertActivation::Gelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return BertActivation::GeluTanh;
  if (name == "relu") return BertActivation::Relu;
  settings.fail("hidden_act", "gelu, gelu_new, gelu_pytorch_tanh or relu", "'" + name + "'");
}

BertConfig config_from(const Settings& settings) {
  const auto only = [&](std::string_view member, std::string_view allowed) {
    const std::string value = settings.text(member).value_or(std::string(allowed));
    if (value != allowed) settings.fail(member, allowed, "'" + value + "'");
  };
  only("model_type", "bert");
  only("position_embedding_type", "absolute");
  if (settings.flag("is_decoder").value_or(false)) settings.fail("is_decoder", "false", "true");
  BertConfig config;
  config.vocab_size = settings.required_size("vocab_size");
  config.hidden_size = settings.required_size("hidden_size");
  config.num_hidden_layers = settings.required_size("num_hidden_layers");
  config.num_attention_heads = settings.required_size("num_attention_heads");
  config.intermediate_size = settings.required_size("intermediate_size");
  config.max_position_embeddings = settings.required_size("max_position_embeddings");
  config.type_vocab_size = settings.size("type_vocab_size").value_or(config.type_vocab_size);
  config.hidden_act = parse_activation(settings);
  if (const Json* eps = settings.find("layer_norm_eps")) {
    if (!eps->is_number()) settings.fail("layer_norm_eps", "a number", eps->kind());
    config.layer_norm_eps = eps->as_number();
    if (!(config.layer_norm_eps >= 0.0 && config.layer_norm_eps < 1.0)) {
      settings.fail("layer_norm_eps", "0 or more and below 1",
                    fmt::format("{}", config.layer_norm_eps));
    }
  }
  if (config.hidden_size % config.num_attention_heads != 0) {
    settings.fail("num_attention_heads", fmt::format("a divisor of {}", config.hidden_size),
                  std::to_string(config.num_attention_heads));
  }
  return config;
}

// TensorFlow's checkpoints called a norm's weight and bias so.
std::string renamed(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kOldNames{
      {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}};
  for (const auto& [old_name, new_name] : kOldNames) {
    if (name.ends_with(old_name)) {
      name.remove_suffix(old_name.size());
      return std::string(name) + std::string(new_name);
    }
  }
  return std::string(name);
}

// Whether a file can be looked at; one that cannot is reported when it is opened.
bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

StateDict read_weights(const fs::path& directory) {
  const fs::path safetensors = directory / "model.safetensors";
  const fs::path pickled = directory / "pytorch_model.bin";
  if (is_there(safetensors)) return read_safetensors(safetensors);
  if (is_there(pickled)) return read_pt_state_dict(pickled);
  throw FileError(fmt::format(
      "{}: expected model.safetensors or pytorch_model.bin in the directory, got neither",
      directory.string()));
}

// What decides how much memory and time a model takes is looked at before it is made, so that a wrong
// config.json is an error and no allocation: the tables, and two matrices of each layer, of whose sizes
// the other four are.
void check_sizes(const StateDict& state, const BertConfig& config, const fs::path& directory) {
  const auto require = [&](const std::string& name, const Dims& sizes) {
    const Tensor* tensor = state.find(name);
    if (tensor == nullptr || tensor->sizes() != sizes) {
      throw FileError(fmt::format(
          "{}: {}: expected sizes {} as config.json says, got {}", directory.string(), name, sizes,
          tensor == nullptr ? "no such tensor" : to_string(tensor->sizes())));
    }
  };
  const std::int64_t width = config.hidden_size;
  require("embeddings.word_embeddings.weight", {config.vocab_size, width});
  require("embeddings.position_embeddings.weight", {config.max_position_embeddings, width});
  require("embeddings.token_type_embeddings.weight", {config.type_vocab_size, width});
  for (std::int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const std::string prefix = fmt::format("encoder.layer.{}.", layer);
    require(prefix + "attention.self.query.weight", {width, width});
    require(prefix + "intermediate.dense.weight", {config.intermediate_size, width});
  }
}

// Views of a .pt may show few bytes as many numbers, each of which the model would hold by itself.
void check_memory(const StateDict& state, const fs::path& directory) {
  std::unordered_set<const void*> seen;
  std::size_t held = 0;
  std::size_t shown = 0;  // at least a byte for each number: no weight here has fewer
  for (const auto& [name, tensor] : state) {
    const Storage& storage = *tensor.storage();
    if (seen.insert(&storage).second) held += storage.bytes();
    shown += static_cast<std::size_t>(tensor.numel());
  }
  if (shown > held) {
    throw FileError(
        fmt::format("{}: expected weights that each have their own bytes, got {} numbers in {} "
                    "bytes: views that repeat what they show",
                    directory.string(), shown, held));
  }
}

TokenizerOptions tokenizer_options(const fs::path& directory, const BertConfig& config) {
  TokenizerOptions options;
  options.max_length = config.max_position_embeddings;
  const fs::path tokenizer = directory / "tokenizer_config.json";
  if (is_there(tokenizer)) {
    const Settings settings = Settings::read(tokenizer);
    options.lower_case = settings.flag("do_lower_case").value_or(options.lower_case);
    options.split_chinese = settings.flag("tokenize_chinese_chars").value_or(options.split_chinese);
    if (settings.flag("strip_accents").value_or(options.lower_case) != options.lower_case) {
      settings.fail("strip_accents", fmt::format("{} as do_lower_case is", options.lower_case),
                    fmt::format("{}", !options.lower_case));
    }
  }
  const fs::path sentence = directory / "sentence_bert_config.json";
  if (is_there(sentence)) {
    const Settings settings = Settings::read(sentence);
    options.max_length =
        std::min(options.max_length, settings.size("max_seq_length").value_or(options.max_length));
    if (options.max_length < 2) {
      settings.fail("max_seq_length", "at least 2", std::to_string(options.max_length));
    }
  }
  return options;
}

void require_mean_pooling(const fs::path& directory) {
  const fs::path path = directory / "1_Pooling" / "config.json";
  if (!is_there(path)) return;
  const Settings settings = Settings::read(path);
  if (!settings.flag("pooling_mode_mean_tokens").value_or(true)) {
    settings.fail("pooling_mode_mean_tokens", "true (the mean of the tokens)", "false");
  }
  // Several modes together would give longer vectors.
  constexpr std::array<std::string_view, 5> kOthers{
      "pooling_mode_cls_token", "pooling_mode_max_tokens", "pooling_mode_mean_sqrt_len_tokens",
      "pooling_mode_weightedmean_tokens", "pooling_mode_lasttoken"};
  for (const std::string_view mode : kOthers) {
    if (settings.flag(mode).value_or(false)) {
      settings.fail(mode, "false (the mean of the tokens alone)", "true");
    }
  }
}

}  // namespace

BertConfig BertConfig::from_file(const fs::path& path) {
  return quanta::detail::reading(path.string(), [&] { return config_from(Settings::read(path)); });
}

BertConfig BertConfig::from_text(std::string_view json, const std::string& name) {
  return config_from(Settings(json, name));
}

StateDict bert_state(const StateDict& state, BertConfig& config) {
  quanta::detail::require_defined(state, "bert_state");
  constexpr std::string_view kPrefix = "bert.";
  StateDict result;
  bool has_pooler = false;
  for (const auto& [full_name, tensor] : state) {
    std::string_view name = full_name;
    if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    const bool is_pooler = name.starts_with("pooler.");
    const bool belongs = name.starts_with("embeddings.") || name.starts_with("encoder.") ||
                         (is_pooler && config.pooler);
    if (!belongs || name == "embeddings.position_ids") continue;
    has_pooler = has_pooler || is_pooler;
    result.set(renamed(name), tensor);
  }
  config.pooler = has_pooler;
  return result;
}

BertModel BertModel::from_directory(const fs::path& directory) {
  return quanta::detail::reading(directory.string(), [&] {
    BertConfig config = BertConfig::from_file(directory / "config.json");
    const StateDict state = bert_state(read_weights(directory), config);
    check_sizes(state, config, directory);
    check_memory(state, directory);
    const SkipInit scope;
    BertModel model(config);
    model.load_state_dict(state);
    model.eval();
    return model;
  });
}

Tensor mean_pooling(const Tensor& hidden, const Tensor& attention_mask) {
  QUANTA_CHECK(hidden.defined() && hidden.dim() == 3,
               "mean_pooling: hidden: expected [batch, steps, features], got {}",
               hidden.defined() ? to_string(hidden.sizes()) : "an undefined tensor");
  QUANTA_CHECK(
      attention_mask.defined() && attention_mask.sizes() == Dims({hidden.size(0), hidden.size(1)}),
      "mean_pooling: attention_mask: expected sizes [{}, {}], got {}", hidden.size(0),
      hidden.size(1),
      attention_mask.defined() ? to_string(attention_mask.sizes()) : "an undefined tensor");
  const Tensor tokens = ne(attention_mask, 0.0).to(DType::Float32).unsqueeze(-1);
  // A text without tokens gives zeros.
  const Tensor count = clamp(sum(tokens, {1}), 1.0, std::nullopt);
  return div(sum(mul(hidden, tokens), {1}), count);
}

Tensor l2_normalize(const Tensor& x, double eps) {
  QUANTA_CHECK(x.defined() && x.dim() == 2 && x.dtype() == DType::Float32,
               "l2_normalize: x: expected Float32 [batch, features], got {}",
               x.defined() ? to_string(x.sizes()) : "an undefined tensor");
  const Tensor result = x.clone(MemoryFormat::Contiguous);
  const std::int64_t features = x.size(1);
  auto* row = result.mutable_data<float>();
  for (std::int64_t i = 0; i < x.size(0); ++i, row += features) {
    double squares = 0.0;
    for (std::int64_t j = 0; j < features; ++j) {
      squares += static_cast<double>(row[j]) * static_cast<double>(row[j]);
    }
    const auto length = static_cast<float>(std::max(std::sqrt(squares), eps));
    for (std::int64_t j = 0; j < features; ++j) row[j] /= length;
  }
  return result;
}

SentenceEncoder::SentenceEncoder(WordPieceTokenizer tokenizer, BertModel bert)
    : model(std::move(bert)), tokenizer_(std::move(tokenizer)) {
  const auto tokens = static_cast<std::int64_t>(tokenizer_.vocabulary_size());
  QUANTA_CHECK(tokens <= model.config().vocab_size,
               "SentenceEncoder: tokenizer: expected at most {} tokens as the model has, got {}",
               model.config().vocab_size, tokens);
  QUANTA_CHECK(tokenizer_.options().max_length <= model.config().max_position_embeddings,
               "SentenceEncoder: tokenizer: expected a max_length of at most {}, got {}",
               model.config().max_position_embeddings, tokenizer_.options().max_length);
}

SentenceEncoder SentenceEncoder::from_directory(const fs::path& directory) {
  std::error_code ignored;
  if (!fs::is_directory(directory, ignored)) {
    throw FileError(fmt::format("SentenceEncoder: {}: expected a directory, got {}",
                                directory.string(),
                                is_there(directory) ? "a file" : "nothing there"));
  }
  const BertConfig config = BertConfig::from_file(directory / "config.json");
  require_mean_pooling(directory);
  WordPieceTokenizer tokenizer =
      WordPieceTokenizer::from_file(directory / "vocab.txt", tokenizer_options(directory, config));
  return {std::move(tokenizer), BertModel::from_directory(directory)};
}

Tensor SentenceEncoder::encode(std::span<const std::string> texts) const {
  const TokenBatch batch = tokenizer_(texts);
  // Of the members that no form of the model replaces.
  const Device device = model.embeddings->layer_norm->weight.device();
  const Tensor mask = batch.attention_mask.to(device);
  const Tensor hidden = model.forward(batch.input_ids.to(device), mask);
  return l2_normalize(mean_pooling(hidden, mask).cpu());
}

}  // namespace quanta::nn::models
