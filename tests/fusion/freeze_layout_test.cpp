#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "quanta/fusion/freeze.h"
#include "quanta/nn/activation.h"
#include "quanta/nn/container.h"
#include "quanta/ops/arithmetic.h"
#include "quanta/ops/shape.h"
#include "quanta/runtime/random.h"
#include "support/tensors.h"

namespace quanta {
namespace {

struct Layout {
  std::string name;
  Tensor x;
};

/// Tensors of these sizes with other strides, offsets and elements.
std::vector<Layout> layouts_of(const Dims& sizes, Generator& generator) {
  const auto rank = static_cast<std::int64_t>(sizes.size());
  std::vector<Layout> result{{"contiguous", randn(sizes, generator)}};
  if (rank == 0) return result;
  Dims doubled = sizes, longer = sizes, single = sizes;
  doubled[doubled.size() - 1] *= 2;
  longer[0] += 3;
  single[0] = 1;
  result.push_back({"every second",
                    randn(doubled, generator).slice(rank - 1, 0, doubled[doubled.size() - 1], 2)});
  result.push_back({"with an offset", randn(longer, generator).narrow(0, 2, sizes[0])});
  result.push_back({"expanded", randn(single, generator).expand(sizes)});
  if (rank >= 2) {
    Dims turned = sizes;
    std::swap(turned[0], turned[turned.size() - 1]);
    result.push_back({"transposed", randn(turned, generator).transpose(0, rank - 1)});
  }
  if (rank >= 3 && rank <= 5) {
    result.push_back({"channels last", randn(sizes, generator).clone(MemoryFormat::ChannelsLast)});
  }
  return result;
}

}  // namespace

TEST_CASE("freeze: inputs of any rank and any strides give what the network gives") {
  Generator generator(2);
  nn::Sequential net(nn::make_module<nn::Hardswish>(), nn::make_module<nn::ReLU>());
  net.eval();
  for (const Dims& sizes :
       {Dims{}, Dims{7}, Dims{1}, Dims{4, 6}, Dims{1, 5}, Dims{3, 1}, Dims{2, 3, 4},
        Dims{2, 3, 4, 5}, Dims{1, 3, 4, 5}, Dims{2, 3, 2, 3, 2}, Dims{2, 1, 2, 1, 2, 3}}) {
    CAPTURE(sizes);
    for (const Layout& example : layouts_of(sizes, generator)) {
      CAPTURE(example.name);
      const FrozenModel frozen = freeze(net, example.x);
      for (const Layout& given : layouts_of(sizes, generator)) {
        CAPTURE(given.name);
        CHECK(frozen(given.x).equal(net(given.x)));
      }
    }
  }
}

}  // namespace quanta
