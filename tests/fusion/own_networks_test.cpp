#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/float_islands.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/fuse_modules.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/quantize.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/fusion/quantize_weight_only.h"
#include "quanta/nn/quantized/conv.h"
#include "quanta/ops/factory.h"
#include "quanta/runtime/random.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/own_networks.h"
#include "support/tensors.h"

// Networks of a user's own, whose forward knows nothing of quantization but the stubs: to int8 with
// one call, saved, loaded and frozen.

namespace quanta::test {
namespace {

std::vector<Tensor> batches(const Dims& sizes, std::size_t count) {
  std::vector<Tensor> result;
  for (std::size_t i = 0; i < count; ++i) result.push_back(random_tensor(sizes, 100 + i));
  return result;
}

/// Batch norms that have seen data, as those of a trained network.
template <typename Net>
Net with_statistics(Net net, const Dims& sizes) {
  net.train();
  for (const Tensor& x : batches(sizes, 8)) static_cast<void>(net(x));
  net.eval();
  return net;
}

/// What PyTorch's eager mode asks for: groups written down, FloatFunctionals, stubs.
template <typename Net>
Net quantized_by_hand(const Net& net, const FusionGroups& groups, std::span<const Tensor> data) {
  Net by_hand = with_statistics(net, data[0].sizes());
  fuse_modules(by_hand, groups);
  const Net prepared = prepare(by_hand, get_default_qconfig());
  for (const Tensor& x : data) prepared(x);
  return convert(prepared);
}

template <typename Net>
void check_saved_and_frozen(const Net& int8, const Net& fresh, const Tensor& x) {
  const TemporaryFolder folder;
  save_model(int8, folder / "int8.safetensors");
  Net loaded = nn::deep_copy(fresh);
  load_model(loaded, folder / "int8.safetensors");
  const Tensor y = int8(x);
  CHECK(loaded(x).equal(y));
  CHECK(freeze(int8, x)(x).equal(y));
  CHECK(freeze(loaded, x)(x).equal(y));
}

template <typename Net>
struct OneCall {
  Net int8;
  std::vector<Tensor> data;
  Tensor x;
};

/// A network of random weights, to int8 with one call, whose results have `least_db` at least.
template <typename Net>
OneCall<Net> check_one_call(std::uint64_t seed, const Dims& sizes, double least_db) {
  manual_seed(seed);
  const Net net = with_statistics(Net(), sizes);
  std::vector<Tensor> data = batches(sizes, 4);
  Net int8 = quantize(net, data[0], data);
  const Tensor x = random_tensor(sizes, 7);
  CHECK(sqnr_db(net(x), int8(x)) > least_db);
  check_saved_and_frozen(int8, Net(), x);
  return {std::move(int8), std::move(data), x};
}

}  // namespace

TEST_CASE("a U-Net whose forward joins tensors with cat: one call to int8") {
  const auto [int8, data, x] = check_one_call<UNet>(1, {2, 3, 32, 32}, 30.0);
  for (const FloatIsland& island : float_islands(int8)) {
    CHECK_MESSAGE(island.is_int8, island.to_string());
  }
  CHECK(float_islands(int8).size() == 2);
  FusionGroups groups;
  for (const char* block : {"down1", "down2", "bottom", "up2", "up1"}) {
    for (const char* i : {"1", "2"}) {
      const std::string path = std::string(block) + ".";
      groups.push_back({path + "conv" + i, path + "bn" + i, path + "relu" + i});
    }
  }
  manual_seed(1);
  CHECK(int8(x).equal(quantized_by_hand(UNet(true), groups, data)(x)));
}

TEST_CASE("a ShuffleNet with chunk, cat and channel_shuffle: one call to int8") {
  const auto [int8, data, x] = check_one_call<ShuffleNet>(2, {2, 3, 32, 32}, 30.0);
  FusionGroups groups{{"conv1", "bn1", "relu1"}};
  for (const char* i : {"0", "1", "2"}) {
    const std::string branch = std::string("stage.") + i + ".branch.";
    groups.push_back({branch + "0", branch + "1", branch + "2"});
    groups.push_back({branch + "3", branch + "4"});
    groups.push_back({branch + "5", branch + "6", branch + "7"});
  }
  manual_seed(2);
  CHECK(int8(x).equal(quantized_by_hand(ShuffleNet(true), groups, data)(x)));
}

TEST_CASE("a CRNN whose recurrent part stays in float or becomes dynamic") {
  static_cast<void>(check_one_call<Crnn>(3, {2, 1, 16, 64}, 40.0));
}

TEST_CASE("a text encoder with a mask: dynamic, weight-only, saved and frozen with two inputs") {
  manual_seed(4);
  const TextEncoder net;
  const Tensor ids = Tensor::arange(24, DType::Int64).view({3, 8});
  Tensor padding = Tensor::zeros({3, 8}, DType::Bool);
  const Tensor y = net(ids, padding);
  CHECK(net({ids, padding}).size() == 1);
  const TextEncoder dynamic = quantize_dynamic(net);
  const TextEncoder weights = quantize_weight_only(net);
  CHECK(sqnr_db(y, dynamic(ids, padding)) > 30.0);
  CHECK(sqnr_db(y, weights(ids, padding)) > 40.0);
  for (const TextEncoder* int8 : {&dynamic, &weights}) {
    const TemporaryFolder folder;
    save_model(*int8, folder / "text.safetensors");
    TextEncoder loaded;
    load_model(loaded, folder / "text.safetensors");
    CHECK(loaded(ids, padding).equal((*int8)(ids, padding)));
    const FrozenModel frozen = freeze(*int8, {ids, padding});
    CHECK(frozen(ids, padding).equal((*int8)(ids, padding)));
  }
}

}  // namespace quanta::test
