#include "quanta/nn/models/bert.h"

#include <doctest/doctest.h>

#include <array>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "../runtime/file_test_util.h"
#include "quanta/nn/transformer.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"
#include "support/compare.h"

namespace quanta::nn::models {
namespace {

using test::largest_difference;
using test::write_bytes;

constexpr double kTolerance = 1e-5;

constexpr BertConfig kTiny{.vocab_size = 9,
                           .hidden_size = 8,
                           .num_hidden_layers = 2,
                           .num_attention_heads = 2,
                           .intermediate_size = 12,
                           .max_position_embeddings = 6};

const std::string kTinyJson =
    R"({"model_type": "bert", "vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 2,
        "num_attention_heads": 2, "intermediate_size": 12, "max_position_embeddings": 6,
        "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu"})";

const std::string kVocabulary = "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\ne\n";

BertModel tiny_model() {
  BertModel model(kTiny);
  for (const Module::NamedTensor& parameter : model.named_parameters()) {
    parameter.tensor.copy_(mul_scalar(randn(parameter.tensor.sizes()), 0.5));
  }
  model.eval();
  return model;
}

Tensor ids(const std::vector<std::int64_t>& values, const Dims& sizes) {
  return Tensor::from_int64(values).reshape(sizes);
}

void write_directory(const std::filesystem::path& folder, const StateDict& state,
                     const std::string& config = kTinyJson) {
  std::filesystem::create_directories(folder);
  write_bytes(folder / "config.json", config);
  write_bytes(folder / "vocab.txt", kVocabulary);
  write_safetensors(folder / "model.safetensors", state);
}

// An encoder layer of torch's kind with a BERT layer's weights.
TransformerEncoderLayer as_encoder_layer(const StateDict& state, const std::string& prefix) {
  TransformerEncoderLayer layer({.d_model = 8,
                                 .nhead = 2,
                                 .dim_feedforward = 12,
                                 .activation = TransformerActivation::GELU,
                                 .layer_norm_eps = 1e-12,
                                 .batch_first = true});
  const auto at = [&](const std::string& name) { return state.at(prefix + name); };
  StateDict result;
  for (const std::string kind : {"weight", "bias"}) {
    const std::array<Tensor, 3> parts{at("attention.self.query." + kind),
                                      at("attention.self.key." + kind),
                                      at("attention.self.value." + kind)};
    result.set("self_attn.in_proj_" + kind, cat(parts, 0));
    result.set("self_attn.out_proj." + kind, at("attention.output.dense." + kind));
    result.set("linear1." + kind, at("intermediate.dense." + kind));
    result.set("linear2." + kind, at("output.dense." + kind));
    result.set("norm1." + kind, at("attention.output.LayerNorm." + kind));
    result.set("norm2." + kind, at("output.LayerNorm." + kind));
  }
  layer.load_state_dict(result);
  layer.eval();
  return layer;
}

TEST_CASE("BertModel: layers give what torch's encoder layers give with the same weights") {
  manual_seed(1);
  const BertModel model = tiny_model();
  const StateDict state = model.state_dict();
  const Tensor input = ids({2, 4, 5, 3, 0, 2, 6, 3, 0, 0}, {2, 5});
  const Tensor mask = ids({1, 1, 1, 1, 0, 1, 1, 1, 0, 0}, {2, 5});
  const Tensor types = ids({0, 0, 1, 1, 0, 0, 0, 1, 1, 0}, {2, 5});
  Tensor x = model.embeddings->forward(input, types);
  const Tensor left_out = Tensor::empty({2, 5}, DType::Bool);
  for (std::int64_t i = 0; i < 10; ++i) {
    left_out.mutable_data<bool>()[i] = mask.data<std::int64_t>()[i] == 0;
  }
  for (const std::string prefix : {"encoder.layer.0.", "encoder.layer.1."}) {
    x = as_encoder_layer(state, prefix).forward(x, {.src_key_padding_mask = left_out});
  }
  CHECK(largest_difference(model.forward(input, mask, types), x) < kTolerance);
  CHECK(model.pooler(x).sizes() == Dims{2, 8});
}

TEST_CASE("BertModel: attention_dtype is that of the products") {
  const auto layer = [](DType dtype) {
    manual_seed(2);
    BertConfig config{.hidden_size = 64, .num_attention_heads = 4};
    config.attention_dtype = dtype;
    BertSelfAttention made(config);
    made.eval();
    return made;
  };
  const Tensor x = randn({2, 21, 64});
  const Tensor mask = Tensor::zeros({2, 1, 1, 21});
  mask.slice(3, 15, 21).fill_(-std::numeric_limits<double>::infinity());
  const Tensor float32 = layer(DType::Float32).forward(x, mask);
  const Tensor int8 = layer(DType::QInt8).forward(x, mask);
  CHECK(largest_difference(int8, float32) > 0.0);
  CHECK(test::sqnr_db(float32, int8) > 35.0);
}

TEST_CASE("BertModel: embeddings are words and positions and types added and normalized") {
  manual_seed(2);
  const BertModel model = tiny_model();
  const BertEmbeddings& e = *model.embeddings.operator->();
  const Tensor y = e(ids({4, 7}, {1, 2}));
  const Tensor sum = add(add(e.word_embeddings->weight[7], e.position_embeddings->weight[1]),
                         e.token_type_embeddings->weight[0]);
  CHECK(largest_difference(y[0][1], e.layer_norm(sum)) < kTolerance);
}

TEST_CASE("BertModel: padding does not change what is before it") {
  manual_seed(3);
  const BertModel model = tiny_model();
  const Tensor alone = model(ids({2, 4, 3}, {1, 3}));
  const Tensor padded = model.forward(ids({2, 4, 3, 0, 8}, {1, 5}), ids({1, 1, 1, 0, 0}, {1, 5}));
  CHECK(largest_difference(padded.narrow(1, 0, 3), alone) < kTolerance);
  const Tensor all = ids({1, 1, 1}, {1, 3});
  CHECK(model.forward(ids({2, 4, 3}, {1, 3}), all).equal(alone));
}

TEST_CASE("BertModel: numbers and sizes that do not fit are refused by name") {
  const BertModel model = tiny_model();
  CHECK_THROWS_WITH_AS(model(ids({2, 3}, {2})), doctest::Contains("input_ids: expected [batch"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(model(Tensor::zeros({1, 7}, DType::Int64)),
                       doctest::Contains("input_ids: expected at most 6 steps, got 7"),
                       ArgumentError);
  CHECK_THROWS_AS(model(ids({9}, {1, 1})), ArgumentError);
  CHECK_THROWS_WITH_AS(model.forward(ids({2, 3}, {1, 2}), ids({1}, {1, 1})),
                       doctest::Contains("attention_mask: expected sizes [1, 2]"), ArgumentError);
  CHECK_THROWS_WITH_AS(model.forward(ids({2, 3}, {1, 2}), {}, ids({0, 2}, {1, 2})),
                       doctest::Contains("got 2 (in module 'embeddings.token_type_embeddings')"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(model(ids({2, 3}, {2})), doctest::Contains("(in module 'BertModel')"),
                       ArgumentError);
  CHECK_THROWS_WITH_AS(model.forward(ids({2, 3}, {1, 2}), {}, ids({1}, {1, 1})),
                       doctest::Contains("token_type_ids: expected sizes [1, 2]"), ArgumentError);
  BertConfig config = kTiny;
  config.num_attention_heads = 3;
  CHECK_THROWS_WITH_AS(BertModel{config},
                       doctest::Contains("num_attention_heads: expected a "
                                         "divisor of hidden_size 8, got 3"),
                       ArgumentError);
  CHECK_THROWS_AS(BertOutput(8, kTiny)(Tensor::ones({1, 8})), ArgumentError);
}

TEST_CASE("BertConfig: config.json is read and what is not BERT's is refused") {
  const BertConfig config = BertConfig::from_text(kTinyJson, "config.json");
  CHECK(config.hidden_size == 8);
  CHECK(config.hidden_act == BertActivation::Gelu);
  const auto with = [](const std::string& from, const std::string& to) {
    std::string text = kTinyJson;
    text.replace(text.find(from), from.size(), to);
    return BertConfig::from_text(text, "config.json");
  };
  CHECK(with("\"gelu\"", "\"gelu_new\"").hidden_act == BertActivation::GeluTanh);
  CHECK(with("\"gelu\"", "\"relu\"").hidden_act == BertActivation::Relu);
  const auto refused = [&](const std::string& from, const std::string& to, const char* text) {
    CHECK_THROWS_WITH_AS(with(from, to), doctest::Contains(text), FileError);
  };
  refused("\"gelu\"", "\"swish\"", "hidden_act: expected gelu");
  refused("\"bert\"", "\"roberta\"", "model_type: expected bert, got 'roberta'");
  refused("\"hidden_size\"", "\"hidden\"",
          "config.json: hidden_size: expected a whole number, got none");
  refused("\"vocab_size\": 9", "\"vocab_size\": -1", "vocab_size: expected 1..1073741824, got -1");
  refused("\"vocab_size\": 9", "\"vocab_size\": \"9\"", "vocab_size: expected a whole number, got");
  refused("_heads\": 2", "_heads\": 3", "num_attention_heads: expected a divisor of 8, got 3");
  refused("1e-12", "2.0", "layer_norm_eps: expected 0 or more");
  CHECK_THROWS_AS(BertConfig::from_text("[]", "config.json"), FileError);
  CHECK_THROWS_AS(BertConfig::from_text("{", "config.json"), FileError);
  CHECK_THROWS_AS(BertConfig::from_file("/nonexistent/config.json"), FileError);
}

TEST_CASE("bert_state: prefixes and old names are mapped and foreign tensors left out") {
  const BertModel model = tiny_model();
  StateDict file;
  for (const auto& [name, tensor] : model.state_dict()) {
    std::string old_name = "bert." + name;
    if (const auto at = old_name.find("LayerNorm.weight"); at != std::string::npos) {
      old_name = old_name.substr(0, at) + "LayerNorm.gamma";
    } else if (const auto found = old_name.find("LayerNorm.bias"); found != std::string::npos) {
      old_name = old_name.substr(0, found) + "LayerNorm.beta";
    }
    if (name.find("pooler") == std::string::npos) file.set(old_name, tensor);
  }
  file.set("bert.embeddings.position_ids", Tensor::arange(6, DType::Int64));
  file.set("cls.predictions.bias", Tensor::ones({9}));
  BertConfig config = kTiny;
  const StateDict state = bert_state(file, config);
  CHECK_FALSE(config.pooler);
  BertModel loaded(config);
  CHECK_NOTHROW(loaded.load_state_dict(state));
  loaded.eval();
  const Tensor input = ids({2, 4, 3}, {1, 3});
  CHECK(loaded(input).equal(model(input)));
}

TEST_CASE("mean_pooling and l2_normalize: padding does not count and rows get length one") {
  const Tensor hidden = Tensor::from_values({1, 2, 3, 4, 100, 100, 5, 6, 0, 0, 0, 0}, {2, 3, 2});
  const Tensor mask = ids({1, 1, 0, 1, 0, 0}, {2, 3});
  CHECK(mean_pooling(hidden, mask).to_float_vector() == std::vector<float>{2, 3, 5, 6});
  CHECK(mean_pooling(hidden, ids({0, 0, 0, 0, 0, 0}, {2, 3})).to_float_vector()[0] == 0.0F);
  const Tensor y = l2_normalize(Tensor::from_values({3, 4, 0, 0}, {2, 2}));
  CHECK(largest_difference(y, Tensor::from_values({0.6F, 0.8F, 0, 0}, {2, 2})) < 1e-7);
  CHECK_THROWS_AS(mean_pooling(hidden, ids({1}, {1, 1})), ArgumentError);
  CHECK_THROWS_AS(l2_normalize(hidden), ArgumentError);
}

TEST_CASE(
    "SentenceEncoder: a directory gives vectors of length one that do not depend on a batch") {
  manual_seed(4);
  const test::TemporaryFolder folder;
  const BertModel model = tiny_model();
  write_directory(folder.path(), model.state_dict());
  write_bytes(folder.path() / "sentence_bert_config.json", R"({"max_seq_length": 5})");
  const SentenceEncoder encoder = SentenceEncoder::from_directory(folder.path());
  CHECK_FALSE(encoder.model.is_training());
  CHECK(encoder.tokenizer().options().max_length == 5);
  const std::vector<std::string> texts{"a b", "c", "A e d c b a"};
  const Tensor batch = encoder.encode(texts);
  CHECK(batch.sizes() == Dims{3, 8});
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const Tensor row = batch.narrow(0, static_cast<std::int64_t>(i), 1);
    CHECK(largest_difference(row, encoder.encode(texts[i])) < kTolerance);
    double squares = 0.0;
    for (const float v : row.to_float_vector()) squares += static_cast<double>(v * v);
    CHECK(squares == doctest::Approx(1.0));
  }
  const Tensor hidden = model(ids({2, 6, 3}, {1, 3}));
  CHECK(largest_difference(batch.narrow(0, 1, 1),
                           l2_normalize(mean_pooling(hidden, ids({1, 1, 1}, {1, 3})))) <
        kTolerance);
}

// What torch.save writes of a state_dict: all tensors in one storage.
std::string torch_file(const StateDict& state) {
  std::string items;
  std::string storage;
  std::int64_t total = 0;
  for (const auto& [name, tensor] : state) total += tensor.numel();
  std::int64_t offset = 0;
  for (const auto& [name, tensor] : state) {
    const std::vector<float> values = tensor.to_float_vector();
    for (const float value : values) test::put(storage, value);
    const Dims strides = tensor.contiguous().strides();
    items += test::text(name) + test::tensor_call(test::storage_id("FloatStorage", total), offset,
                                                  {tensor.sizes().begin(), tensor.sizes().end()},
                                                  {strides.begin(), strides.end()});
    offset += tensor.numel();
  }
  return test::make_pt(
      test::pickle(test::global("collections", "OrderedDict") + ")R(" + items + "u"), storage);
}

TEST_CASE("SentenceEncoder: a pytorch_model.bin is read where there is no model.safetensors") {
  manual_seed(5);
  const test::TemporaryFolder folder;
  const StateDict state = tiny_model().state_dict();
  write_directory(folder.path(), state);
  const Tensor y = SentenceEncoder::from_directory(folder.path()).encode("a b c");
  std::filesystem::remove(folder.path() / "model.safetensors");
  const std::string bytes = torch_file(state);
  write_bytes(folder.path() / "pytorch_model.bin", bytes);
  CHECK(SentenceEncoder::from_directory(folder.path()).encode("a b c").equal(y));
  StateDict part = state;
  part.erase("encoder.layer.0.output.dense.weight");
  write_bytes(folder.path() / "pytorch_model.bin", torch_file(part));
  CHECK_THROWS_WITH_AS(SentenceEncoder::from_directory(folder.path()),
                       doctest::Contains("encoder.layer.0.output.dense.weight"), ArgumentError);
  for (const std::size_t kept : {std::size_t{0}, bytes.size() / 2, bytes.size() - 1}) {
    write_bytes(folder.path() / "pytorch_model.bin", std::string_view(bytes).substr(0, kept));
    CHECK_THROWS_AS(SentenceEncoder::from_directory(folder.path()), FileError);
  }
}

TEST_CASE("SentenceEncoder: weights that show the same bytes many times are refused") {
  const test::TemporaryFolder folder;
  const StateDict state = tiny_model().state_dict();
  write_directory(folder.path(), state);
  std::filesystem::remove(folder.path() / "model.safetensors");
  std::string items;
  for (const auto& [name, tensor] : state) {
    items +=
        test::text(name) + test::tensor_call(test::storage_id("FloatStorage", 1), 0,
                                             {tensor.sizes().begin(), tensor.sizes().end()},
                                             std::vector<std::int64_t>(tensor.sizes().size(), 0));
  }
  write_bytes(
      folder.path() / "pytorch_model.bin",
      test::make_pt(test::pickle(test::global("collections", "OrderedDict") + ")R(" + items + "u"),
                    std::string(4, '\0')));
  CHECK_THROWS_WITH_AS(SentenceEncoder::from_directory(folder.path()),
                       doctest::Contains("views that repeat what they show"), FileError);
}

TEST_CASE("SentenceEncoder: what is missing or wrong in a directory is named") {
  const test::TemporaryFolder folder;
  const StateDict whole = tiny_model().state_dict();
  const std::filesystem::path path = folder.path() / "model";
  const auto refused = [&](const char* text) {
    CHECK_THROWS_WITH_AS(SentenceEncoder::from_directory(path), doctest::Contains(text), Error);
  };
  refused("expected a directory, got nothing there");
  std::filesystem::create_directories(path);
  refused("config.json");
  write_bytes(path / "config.json", kTinyJson);
  refused("vocab.txt");
  write_bytes(path / "vocab.txt", kVocabulary);
  refused("expected model.safetensors or pytorch_model.bin in the directory, got neither");

  StateDict state = whole;
  state.erase("encoder.layer.1.attention.self.key.bias");
  write_directory(path, state);
  refused("encoder.layer.1.attention.self.key.bias");
  state.erase("embeddings.word_embeddings.weight");
  write_directory(path, state);
  refused(
      "embeddings.word_embeddings.weight: expected sizes [9, 8] as config.json says, got no "
      "such tensor");
  // A config that asks for far too much is an error before anything is allocated.
  std::string config = kTinyJson;
  config.replace(config.find("\"vocab_size\": 9"), 15, "\"vocab_size\": 900000000");
  write_directory(path, whole, config);
  refused("embeddings.word_embeddings.weight: expected sizes [900000000, 8]");
  // The last layer of a billion is there, and few of those before it.
  StateDict gaps = whole;
  gaps.set("encoder.layer.1073741823.intermediate.dense.weight",
           whole.at("encoder.layer.1.intermediate.dense.weight"));
  config = kTinyJson;
  config.replace(config.find("\"num_hidden_layers\": 2"), 22, "\"num_hidden_layers\": 1073741824");
  write_directory(path, gaps, config);
  refused("encoder.layer.2.attention.self.query.weight: expected sizes [8, 8] as config.json says");
  write_directory(path, whole);
  write_bytes(path / "vocab.txt", kVocabulary + "f\n");
  refused("tokenizer: expected at most 9 tokens as the model has, got 10");
  write_directory(path, whole);
  std::filesystem::create_directories(path / "1_Pooling");
  write_bytes(path / "1_Pooling" / "config.json", R"({"pooling_mode_mean_tokens": false})");
  refused("pooling_mode_mean_tokens: expected true");
  write_bytes(path / "1_Pooling" / "config.json",
              R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true})");
  refused("pooling_mode_cls_token: expected false (the mean of the tokens alone), got true");
  std::filesystem::remove(path / "1_Pooling" / "config.json");
  write_bytes(path / "tokenizer_config.json", R"({"strip_accents": false})");
  refused("strip_accents: expected true as do_lower_case is, got false");
  write_bytes(path / "tokenizer_config.json",
              R"({"do_lower_case": false, "strip_accents": false})");
  CHECK_FALSE(SentenceEncoder::from_directory(path).tokenizer().options().lower_case);
  write_bytes(path / "sentence_bert_config.json", R"({"max_seq_length": 1})");
  refused("max_seq_length: expected at least 2, got 1");
  std::filesystem::remove(path / "sentence_bert_config.json");
  const std::string weights = test::read_bytes(path / "model.safetensors");
  write_bytes(path / "model.safetensors", std::string_view(weights).substr(0, weights.size() - 4));
  refused("model.safetensors");
}

}  // namespace
}  // namespace quanta::nn::models
