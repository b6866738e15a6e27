// What PyTorch has None for: inputs that are there or not.

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "quanta/nn/attention.h"
#include "quanta/nn/container.h"
#include "quanta/nn/embedding.h"
#include "quanta/nn/float_functional.h"
#include "quanta/nn/loss.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/quantizable/lstm.h"
#include "quanta/nn/rnn.h"
#include "quanta/nn/rnn_cell.h"
#include "quanta/nn/transformer.h"
#include "quanta/runtime/error.h"
#include "support/tensors.h"

namespace quanta::nn {
namespace {

using test::random_tensor;

const Tensor kUndefined;

void check_refused(const std::string& text, const std::function<void()>& call) {
  CAPTURE(text);
  CHECK_THROWS_WITH_AS(call(), doctest::Contains(text.c_str()), ArgumentError);
}

}  // namespace

TEST_CASE("modules of one input: an undefined one is refused and not handed on") {
  check_refused("Identity: x: expected a tensor, got an undefined one",
                [] { Identity()(kUndefined); });
  check_refused("Dropout: x: expected a tensor, got an undefined one",
                [] { Dropout()(kUndefined); });
  check_refused("Sequential: x: expected a tensor, got an undefined one",
                [] { Sequential()(kUndefined); });
}

TEST_CASE("modules of several inputs: an undefined one is refused by name") {
  const Tensor x = random_tensor({2, 3, 4}, 1);
  const Tensor rows = random_tensor({2, 4}, 2);
  const Tensor state = Tensor::zeros({1, 3, 3});
  const Tensor cell_state = Tensor::zeros({2, 3});
  const RecurrentOptions recurrent{.input_size = 4, .hidden_size = 3};
  const CellOptions cell{.input_size = 4, .hidden_size = 3};
  const std::string undefined = "expected a tensor, got an undefined one";

  const LSTM lstm(recurrent);
  check_refused("LSTM: x: " + undefined, [&] { lstm.forward(kUndefined, {state, state}); });
  check_refused("LSTM: h: expected both h and c or none", [&] {
    lstm.forward(x, {kUndefined, state});
  });
  check_refused("LSTM: c: expected both h and c or none", [&] {
    lstm.forward(x, {state, kUndefined});
  });
  PackedSequence packed = pack_sequence(std::vector<Tensor>{rows});
  packed.data = Tensor();
  check_refused("LSTM: data: " + undefined, [&] { lstm.forward(packed); });
  check_refused("GRU: x: " + undefined, [&] { GRU(recurrent).forward(kUndefined, state); });
  check_refused("LSTMCell: x: " + undefined, [&] {
    LSTMCell(cell).forward(kUndefined, {cell_state, cell_state});
  });
  check_refused("GRUCell: x: " + undefined, [&] { GRUCell(cell).forward(kUndefined, cell_state); });
  check_refused("quantizable::LSTMCell.from_params: weight_hh: " + undefined, [&] {
    quantizable::LSTMCell::from_params({.weight_ih = random_tensor({12, 4}, 3)});
  });

  const MultiheadAttention attention({.embed_dim = 4, .num_heads = 2});
  check_refused("query: expected a Float32 tensor, got an undefined one",
                [&] { attention.forward(kUndefined, x, x); });
  check_refused("key: expected a Float32 tensor, got an undefined one",
                [&] { attention.forward(x, kUndefined, x); });
  check_refused("value: expected a Float32 tensor, got an undefined one",
                [&] { attention.forward(x, x, kUndefined); });
  const TransformerDecoderLayer decoder({.d_model = 4, .nhead = 2});
  check_refused("got an undefined one", [&] { decoder.forward(x, kUndefined); });
  check_refused("got an undefined one", [&] { decoder.forward(kUndefined, x); });

  const EmbeddingBag bag({.num_embeddings = 5, .embedding_dim = 4});
  check_refused("indices: expected Int32 or Int64, got an undefined tensor",
                [&] { bag.forward(kUndefined, Tensor::zeros({2}, DType::Int64)); });
  check_refused("mse_loss: target: expected", [&] { MSELoss()(x, kUndefined); });
  check_refused("cross_entropy: target: " + undefined,
                [&] { CrossEntropyLoss()(rows, kUndefined); });
  check_refused("add: rhs: " + undefined, [&] { FloatFunctional().add(x, kUndefined); });
}

TEST_CASE("modules of several inputs: states and masks that are undefined are left out") {
  const Tensor x = random_tensor({2, 3, 4}, 1);
  const Tensor rows = random_tensor({2, 4}, 2);
  LSTM lstm({.input_size = 4, .hidden_size = 3});
  GRU gru({.input_size = 4, .hidden_size = 3});
  GRUCell cell({.input_size = 4, .hidden_size = 3});
  const Tensor zeros = Tensor::zeros({1, 3, 3});
  CHECK(lstm.forward(x, LstmState{}).output.equal(lstm.forward(x, {zeros, zeros}).output));
  CHECK(gru.forward(x, kUndefined).output.equal(gru.forward(x, zeros).output));
  CHECK(cell.forward(rows, kUndefined).equal(cell.forward(rows, Tensor::zeros({2, 3}))));
  const MultiheadAttention attention({.embed_dim = 4, .num_heads = 2});
  CHECK(attention.forward(x, x, x, {.key_padding_mask = kUndefined, .attn_mask = kUndefined})
            .output.equal(attention.forward(x, x, x).output));
}

}  // namespace quanta::nn
