#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/models/tokenizer.h"
#include "quanta/nn/norm.h"

// What each function throws is said below. A module in eval mode, and a SentenceEncoder, may be
// called from many threads at once (see nn/module.h).

/// BERT (Devlin et al. 2018) with the names of Hugging Face's BertModel, so that its checkpoints
/// load as they are. Every projection is a Child<Linear> that quantize_dynamic can swap.
namespace quanta::nn::models {

enum class BertActivation : std::uint8_t { Gelu, GeluTanh, Relu };

/// The members of config.json that a forward needs; defaults are those of bert-base.
struct BertConfig {
  std::int64_t vocab_size = 30522;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  std::int64_t max_position_embeddings = 512;
  std::int64_t type_vocab_size = 2;
  double layer_norm_eps = 1e-12;
  BertActivation hidden_act = BertActivation::Gelu;
  bool pooler = true;
  /// Of the products of queries, keys and values in eval mode: Float32 or QInt8 (ops/attention.h).
  /// Not a member of config.json.
  DType attention_dtype = DType::Float32;

  /// Reads config.json. Throws FileError for a missing file, JSON that is none, members of another
  /// kind or out of range, an activation, model type or kind of position embedding that is not
  /// BERT's.
  static BertConfig from_file(const std::filesystem::path& path);
  static BertConfig from_text(std::string_view json, const std::string& name);
};

/// Query, key and value projections and the attention of each head.
struct BertSelfAttention : Module, HasAttentionDtype {
  Child<Linear> query, key, value;

  explicit BertSelfAttention(const BertConfig& config);
  Tensor forward(const Tensor& x) const override { return forward(x, {}); }
  /// `mask` is what scaled_dot_product_attention takes, here [batch, 1, 1, steps]; or undefined.
  Tensor forward(const Tensor& x, const Tensor& mask) const;
  void set_attention_dtype(DType dtype) override;

 private:
  std::int64_t heads_;
  DType attention_dtype_;
};

/// dense, then the norm of the sum with the layer's input.
struct BertOutput : Module {
  Child<Linear> dense;
  Child<LayerNorm> layer_norm;  ///< named LayerNorm

  BertOutput(std::int64_t in_features, const BertConfig& config);
  /// Throws ArgumentError: there is nothing to add to.
  Tensor forward(const Tensor& x) const override;
  Tensor forward(const Tensor& x, const Tensor& input) const;
};

struct BertAttention : Module {
  Child<BertSelfAttention> self;
  Child<BertOutput> output;

  explicit BertAttention(const BertConfig& config);
  Tensor forward(const Tensor& x) const override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const Tensor& mask) const;
};

struct BertIntermediate : Module {
  Child<Linear> dense;

  explicit BertIntermediate(const BertConfig& config);
  Tensor forward(const Tensor& x) const override;

 private:
  BertActivation activation_;
};

struct BertLayer : Module {
  Child<BertAttention> attention;
  Child<BertIntermediate> intermediate;
  Child<BertOutput> output;

  explicit BertLayer(const BertConfig& config);
  Tensor forward(const Tensor& x) const override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const Tensor& mask) const;
};

struct BertEncoder : Module {
  Child<ModuleList> layer;

  explicit BertEncoder(const BertConfig& config);
  Tensor forward(const Tensor& x) const override { return forward(x, {}); }
  Tensor forward(const Tensor& x, const Tensor& mask) const;
};

/// Words, positions and token types, added and normalized.
struct BertEmbeddings : Module {
  Child<Embedding> word_embeddings, position_embeddings, token_type_embeddings;
  Child<LayerNorm> layer_norm;  ///< named LayerNorm

  explicit BertEmbeddings(const BertConfig& config);
  Tensor forward(const Tensor& input_ids) const override { return forward(input_ids, {}); }
  Tensor forward(const Tensor& input_ids, const Tensor& token_type_ids) const;
};

/// tanh(dense(first token)).
struct BertPooler : Module {
  Child<Linear> dense;

  explicit BertPooler(const BertConfig& config);
  Tensor forward(const Tensor& hidden) const override;
};

/// Token numbers to the last hidden state [batch, steps, hidden_size].
class BertModel : public Module {
 public:
  Child<BertEmbeddings> embeddings;
  Child<BertEncoder> encoder;
  /// Empty if the config has none.
  Child<BertPooler> pooler;

  /// Throws ArgumentError for sizes < 1 and a hidden_size that the heads do not divide. New weights
  /// are those of the layers.
  explicit BertModel(const BertConfig& config);
  const BertConfig& config() const noexcept { return config_; }

  /// `input_ids` is Int32 or Int64 [batch, steps].
  Tensor forward(const Tensor& input_ids) const override { return forward(input_ids, {}); }
  /// `attention_mask` [batch, steps] has 1 for tokens and 0 for padding (Bool or integer;
  /// undefined: all ones), `token_type_ids` [batch, steps] the segment (undefined: 0). Throws
  /// ArgumentError for numbers outside of the tables, sizes that do not fit, and more steps than
  /// there are positions.
  Tensor forward(const Tensor& input_ids, const Tensor& attention_mask,
                 const Tensor& token_type_ids = {}) const;

  /// Reads config.json and model.safetensors, or pytorch_model.bin, of a Hugging Face directory.
  /// Throws FileError for a missing file and for sizes that config.json tells otherwise,
  /// ArgumentError that lists all missing tensors and wrong sizes.
  static BertModel from_directory(const std::filesystem::path& directory);

 private:
  BertConfig config_;
};

/// The state as BertModel names it: without the leading `bert`, with weight and bias for the
/// norms' old names gamma and beta, and without what a BertModel does not hold (position_ids, heads
/// of other tasks; the pooler too if the config has none). The pooler is optional:
/// `config.pooler` becomes false where the file has none.
StateDict bert_state(const StateDict& state, BertConfig& config);

/// The mean of the hidden states [batch, steps, features] of tokens, without padding: [batch,
/// features]. `attention_mask` as above.
Tensor mean_pooling(const Tensor& hidden, const Tensor& attention_mask);
/// x [batch, features], each row divided by its Euclidean length (at least `eps`).
Tensor l2_normalize(const Tensor& x, double eps = 1e-12);

/// Sentences to vectors whose inner products are their similarities: tokenizer, BERT, mean of the
/// tokens, normalized. For models such as all-MiniLM-L6-v2.
class SentenceEncoder {
 public:
  SentenceEncoder(WordPieceTokenizer tokenizer, BertModel model);
  /// Reads config.json, vocab.txt and model.safetensors or pytorch_model.bin; if they are there,
  /// tokenizer_config.json (do_lower_case, tokenize_chinese_chars), sentence_bert_config.json
  /// (max_seq_length) and 1_Pooling/config.json, which has to ask for the mean alone. The model is
  /// in eval mode. Throws FileError or ArgumentError that names what is missing or wrong.
  static SentenceEncoder from_directory(const std::filesystem::path& directory);

  /// May be changed: quantize_dynamic(encoder.model, ...).
  BertModel model;
  const WordPieceTokenizer& tokenizer() const noexcept { return tokenizer_; }

  /// Float32 [texts, hidden_size] on the CPU, wherever the model is; rows have length 1.
  Tensor encode(std::span<const std::string> texts) const;
  Tensor encode(const std::string& text) const { return encode(std::span(&text, 1)); }

 private:
  WordPieceTokenizer tokenizer_;
};

}  // namespace quanta::nn::models
