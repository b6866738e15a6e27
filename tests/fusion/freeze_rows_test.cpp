// freeze: batches that the threads of a run share.

#include <doctest/doctest.h>

#include "fusion/int8_copy.h"
#include "fusion/small_network.h"
#include "quanta/fusion/freeze.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/models/fashion.h"
#include "quanta/nn/models/mobilenet_v3.h"
#include "quanta/nn/models/resnet.h"
#include "support/compare.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta {
namespace {

template <typename Net>
void check_rows(const Net& net, const Dims& sizes) {
  const Tensor x = test::random_tensor(sizes);
  const FrozenModel frozen = freeze(net, x);
  CHECK(frozen.info().rows == sizes[0]);
  CHECK(frozen.to_string().find("rows that all steps work on by themselves") != std::string::npos);
  const Tensor wanted = net(x);
  test::with_threads({1, 2, 3, 4, 5, 8}, [&] {
    CHECK(test::same_bits(frozen(x), wanted));
    CHECK(test::same_bits(frozen(x.contiguous(MemoryFormat::ChannelsLast)), wanted));
  });
}

TEST_CASE("freeze: the images of networks in int8 are calculated each by itself") {
  const test::SmallNetwork small = test::int8_of(test::fused_network());
  for (const std::int64_t batch : {2, 3, 5, 8}) {
    CAPTURE(batch);
    check_rows(small, {batch, 3, 9, 9});
  }
  const Tensor image = test::random_tensor({2, 1, 28, 28});
  check_rows(test::int8_copy(nn::models::FashionResNet(), image), {4, 1, 28, 28});
  check_rows(test::int8_copy(nn::models::FashionMobileNet(), image), {6, 1, 28, 28});
  // So large that two threads do share them.
  const Tensor photo = test::random_tensor({1, 3, 160, 160});
  check_rows(test::int8_copy(nn::models::resnet18(), photo), {4, 3, 160, 160});
  check_rows(test::int8_copy(nn::models::mobilenet_v3_large(), photo), {8, 3, 160, 160});
}

TEST_CASE("freeze: float layers and scales of a whole batch keep its images together") {
  const Tensor x = test::small_input(3);
  test::SmallNetwork net = test::fused_network();
  CHECK(freeze(net, x).info().rows == 0);
  CHECK(freeze(quantize_dynamic(net), x).info().rows == 0);
}

TEST_CASE("freeze: plans for several batches share theirs") {
  const test::SmallNetwork net = test::int8_of(test::fused_network());
  const FrozenModel frozen = freeze(net, test::small_input(3), {.batch_sizes = {1, 4}});
  test::with_threads({1, 2}, [&] {
    for (const std::int64_t batch : {1, 3, 4, 9}) {
      CAPTURE(batch);
      const Tensor x = test::small_input(7, batch);
      CHECK(test::same_bits(frozen(x), net(x)));
    }
  });
}

}  // namespace
}  // namespace quanta
