// A program of its own that uses an installed Quanta.
#include <quanta/quanta.h>

#include <cstdint>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

int main() {
  const auto x = quanta::Tensor::from_values({-1.0F, 0.0F, 0.26F, 24.0F, 30.0F});
  const quanta::QTensor q = quanta::quantize_per_tensor(x, 0.1, 10, quanta::DType::QUInt8);
  std::cout << quanta::to_string(q) << '\n';

  // round(x / 0.1) + 10, clamped to 0..255.
  const std::vector<std::int64_t> expected = {0, 10, 13, 250, 255};
  if (q.to_int64_vector() != expected) {
    std::cerr << "the codes are not the expected ones\n";
    return 1;
  }

  // quanta::models: a network, and quanta::training: a step that changes it.
  quanta::nn::models::FashionResNet net;
  net.requires_grad_();
  const quanta::Tensor image = quanta::randn({1, 1, 28, 28});
  const quanta::Tensor before = net(image);
  quanta::optim::SGD optimizer(net.parameters(), {.lr = 0.1});
  quanta::sum(before).backward();
  optimizer.step();
  if (net(image).equal(before)) {
    std::cerr << "the step changed nothing\n";
    return 1;
  }

  // quanta::yaml: a description of a quantizer, there and back.
  quanta::modelopt::QuantDescriptor descriptor;
  descriptor.amax = quanta::Tensor::from_values({1.5F, 0.25F}, {2, 1});
  const std::string text = quanta::modelopt::to_yaml(descriptor);
  if (!(quanta::modelopt::descriptor_from_yaml(text) == descriptor)) {
    std::cerr << "not the descriptor that became\n" << text;
    return 1;
  }

  // quanta::data: batches of a data set.
  const auto dataset = std::make_shared<quanta::data::TensorDataset>(x.reshape({5, 1, 1, 1}));
  quanta::data::DataLoader loader(dataset, {.batch_size = 2});
  std::int64_t examples = 0;
  for (const quanta::data::Batch& batch : loader) examples += batch.input.size(0);
  return examples == 5 ? 0 : 1;
}
