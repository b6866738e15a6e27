#include "quanta/nn/skip_init.h"

#include <doctest/doctest.h>

#include <memory>
#include <thread>

#include "quanta/nn/embedding.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/models/resnet.h"
#include "quanta/nn/rnn.h"
#include "quanta/runtime/allocator.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {

bool all_zero(const Tensor& x) { return x.equal(Tensor::zeros(x.sizes())); }

}  // namespace

TEST_CASE("SkipInit: weights are zeros and the generator does not advance") {
  manual_seed(1);
  const nn::Linear drawn({.in_features = 3, .out_features = 2});
  manual_seed(1);
  {
    const nn::SkipInit scope;
    CHECK(nn::SkipInit::active());
    const nn::Linear linear({.in_features = 700, .out_features = 600});
    CHECK(all_zero(linear.weight));
    CHECK(all_zero(linear.bias));
    CHECK(all_zero(nn::Embedding({.num_embeddings = 5, .embedding_dim = 3}).weight));
    CHECK(all_zero(nn::GRU({.input_size = 2, .hidden_size = 3}).parameters()[0]));
  }
  CHECK_FALSE(nn::SkipInit::active());
  const nn::Linear after({.in_features = 3, .out_features = 2});
  CHECK(after.weight.equal(drawn.weight));
}

TEST_CASE("SkipInit: other threads draw their weights") {
  const nn::SkipInit scope;
  bool active = true;
  std::thread([&] { active = nn::SkipInit::active(); }).join();
  CHECK_FALSE(active);
}

TEST_CASE("SkipInit: a loaded state is the whole network") {
  manual_seed(2);
  nn::models::ResNet net = nn::models::resnet18();
  net.eval();
  std::shared_ptr<nn::models::ResNet> empty;
  {
    const nn::SkipInit scope;
    empty = nn::make_module<nn::models::ResNet>(nn::models::resnet18());
  }
  empty->eval();
  load_state_dict(*empty, net.state_dict());
  const Tensor x = random_tensor({1, 3, 32, 32}, 3);
  CHECK((*empty)(x).equal(net(x)));
}

}  // namespace quanta::test
