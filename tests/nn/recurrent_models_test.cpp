#include "quanta/nn/models/recurrent.h"

#include <doctest/doctest.h>

#include <string>

#include "quanta/ops/activation.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"

namespace quanta::nn::models {
namespace {

using test::largest_difference;

constexpr RecurrentOptions kSmall{
    .input_size = 5, .hidden_size = 4, .num_layers = 2, .batch_first = true};

template <typename Model>
void check_classifier(const Model& model, const Tensor& x, std::int64_t classes) {
  CHECK(model(x).sizes() == Dims{x.size(0), classes});
  CHECK(model.state_dict().contains("fc.weight"));
}

TEST_CASE("recurrent classifiers: the last step of each sequence decides") {
  manual_seed(1);
  LstmClassifier lstm(kSmall, 3);
  GruClassifier gru(kSmall, 3);
  lstm.eval();
  gru.eval();
  const Tensor x = randn({2, 6, 5});
  check_classifier(lstm, x, 3);
  check_classifier(gru, x, 3);
  CHECK(lstm.state_dict().contains("rnn.weight_hh_l1"));
  CHECK(largest_difference(lstm(x), lstm.fc(lstm.rnn(x).select(1, 5))) == 0.0);
  CHECK(last_step(x).equal(x.select(1, 5)));
}

TEST_CASE("fashion recurrent networks: an image is 28 steps of 28 pixels") {
  manual_seed(2);
  FashionLstm lstm;
  FashionGru gru;
  lstm.eval();
  gru.eval();
  const Tensor x = randn({3, 1, 28, 28});
  check_classifier(lstm, x, 10);
  check_classifier(gru, x, 10);
  CHECK(gru.fc->weight.sizes() == Dims{10, 192});
  CHECK(gru.state_dict().contains("gru.weight_ih_l0_reverse"));
  CHECK(lstm.state_dict().contains("lstm.bias_hh_l1"));
  CHECK(largest_difference(lstm(x), lstm.fc(last_step(lstm.lstm(x.squeeze(1))))) < 1e-6);
  CHECK_THROWS_WITH_AS(lstm(randn({3, 28, 28})),
                       doctest::Contains("x: expected sizes [N, 1, 28, 28], got [3, 28, 28]"),
                       ArgumentError);
}

TEST_CASE("Mlp: three linear layers with relu between them") {
  manual_seed(3);
  Mlp model(6, 8, 3);
  model.eval();
  const Tensor x = randn({2, 6});
  CHECK(largest_difference(model(x), model.fc3(relu(model.fc2(relu(model.fc1(x)))))) < 1e-6);
  for (const auto& group : fusion_groups(model)) {
    for (const std::string& path : group) {
      CHECK_NOTHROW(static_cast<void>(model.get_submodule(path)));
    }
  }
}

}  // namespace
}  // namespace quanta::nn::models
