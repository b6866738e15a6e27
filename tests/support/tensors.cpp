#include "support/tensors.h"

#include <vector>

#include "quanta/ops/cat.h"
#include "quanta/runtime/random.h"

namespace quanta::test {

Tensor random_tensor(const Dims& sizes, std::uint64_t seed) {
  Generator generator(seed);
  return randn(sizes, generator);
}

Tensor uniform_tensor(const Dims& sizes, std::uint64_t seed, float low, float high) {
  Generator generator(seed);
  const Tensor x = Tensor::empty(sizes);
  auto* values = x.mutable_data<float>();
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    values[i] = low + (high - low) * generator.uniform();
  }
  return x;
}

Tensor iota(const Dims& sizes) { return Tensor::arange(product(sizes)).view(sizes); }

Tensor indices(std::initializer_list<std::int64_t> values) {
  return Tensor::from_int64({values.begin(), values.size()});
}

Dims image_sizes(std::int64_t batch, std::int64_t channels, std::int64_t spatial,
                 std::int64_t side) {
  Dims sizes{batch, channels};
  for (std::int64_t i = 0; i < spatial; ++i) sizes.push_back(side);
  return sizes;
}

Tensor leaf(const Tensor& tensor) {
  tensor.set_requires_grad();
  return tensor;
}

Tensor flat(std::initializer_list<Tensor> tensors) {
  std::vector<Tensor> parts;
  for (const Tensor& x : tensors) {
    if (x.defined()) parts.push_back(x.reshape({-1}));
  }
  return cat(parts, 0);
}

}  // namespace quanta::test
