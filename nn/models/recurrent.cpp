#include "quanta/nn/models/recurrent.h"

#include "quanta/runtime/check.h"

namespace quanta::nn::models {
namespace {

LinearOptions classifier(const RecurrentOptions& options, std::int64_t num_classes) {
  const std::int64_t width = options.proj_size > 0 ? options.proj_size : options.hidden_size;
  return {.in_features = width * (options.bidirectional ? 2 : 1), .out_features = num_classes};
}

constexpr std::int64_t kImage = 28;

constexpr RecurrentOptions kFashionLstm{
    .input_size = kImage, .hidden_size = 128, .num_layers = 2, .batch_first = true};
constexpr RecurrentOptions kFashionGru{
    .input_size = kImage, .hidden_size = 96, .batch_first = true, .bidirectional = true};

// Rows of pixels as steps.
Tensor rows_as_steps(std::string_view op, const Tensor& x) {
  QUANTA_CHECK(x.dim() == 4 && x.size(1) == 1 && x.size(2) == kImage && x.size(3) == kImage,
               "{}: x: expected sizes [N, 1, {}, {}], got {}", op, kImage, kImage, x.sizes());
  return x.reshape({x.size(0), kImage, kImage});
}

}  // namespace

Tensor last_step(const Tensor& outputs) { return outputs.select(1, outputs.size(1) - 1); }

LstmClassifier::LstmClassifier(const RecurrentOptions& options, std::int64_t num_classes) {
  register_module("rnn", rnn, options);
  register_module("fc", fc, classifier(options, num_classes));
}

GruClassifier::GruClassifier(const RecurrentOptions& options, std::int64_t num_classes) {
  register_module("rnn", rnn, options);
  register_module("fc", fc, classifier(options, num_classes));
}

FashionLstm::FashionLstm(std::int64_t num_classes) {
  register_module("lstm", lstm, kFashionLstm);
  register_module("fc", fc, classifier(kFashionLstm, num_classes));
}

Tensor FashionLstm::forward(const Tensor& x) const {
  return fc(last_step(lstm(rows_as_steps("FashionLstm", x))));
}

FashionGru::FashionGru(std::int64_t num_classes) {
  register_module("gru", gru, kFashionGru);
  register_module("fc", fc, classifier(kFashionGru, num_classes));
}

Tensor FashionGru::forward(const Tensor& x) const {
  return fc(last_step(gru(rows_as_steps("FashionGru", x))));
}

Mlp::Mlp(std::int64_t in_features, std::int64_t hidden, std::int64_t num_classes) {
  register_module("quant", quant);
  register_module("fc1", fc1, LinearOptions{in_features, hidden});
  register_module("relu1", relu1);
  register_module("fc2", fc2, LinearOptions{hidden, hidden});
  register_module("relu2", relu2);
  register_module("fc3", fc3, LinearOptions{hidden, num_classes});
  register_module("dequant", dequant);
}

Tensor Mlp::forward(const Tensor& x) const {
  const Tensor y = relu1(fc1(quant(x)));
  return dequant(fc3(relu2(fc2(y))));
}

std::vector<std::vector<std::string>> fusion_groups(const Mlp& /*model*/) {
  return {{"fc1", "relu1"}, {"fc2", "relu2"}};
}

}  // namespace quanta::nn::models
