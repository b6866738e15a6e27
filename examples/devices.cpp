// An int8 network on another device: quantized on the CPU, moved, and run there, with the same codes.
//
//   devices                      the emulated CUDA device, which is there in every build
//   devices --device cuda        the first GPU (needs a build with QUANTA_CUDA=ON, docs/cuda.md)

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/quanta.h"

using quanta::Device;
using quanta::Tensor;

namespace {

int run(Device device) {
  std::printf("device: %s (%s)\n", to_string(device).c_str(), device_name(device).c_str());

  quanta::manual_seed(1);
  quanta::Generator generator(2);
  quanta::nn::models::FashionResNet
      net;  // load_state_dict(net, read_safetensors(...)) in real life
  net.eval();
  std::vector<Tensor> batches;
  for (int i = 0; i < 4; ++i) batches.push_back(quanta::randn({8, 1, 28, 28}, generator));
  auto int8 = quanta::quantize(net, batches[0], batches);

  const Tensor x = quanta::randn({2, 1, 28, 28}, generator);
  const Tensor on_cpu = int8(x);

  // Packed weights follow when a layer first meets an input there.
  int8.to(device);
  const Tensor there = int8(x.to(device));
  std::printf("the same result as on the CPU: %s\n", there.cpu().equal(on_cpu) ? "yes" : "no");

  const auto frozen = quanta::freeze(int8, x.to(device));
  std::printf("frozen: %zu steps, the same result: %s\n", frozen.info().steps,
              frozen(x.to(device)).cpu().equal(on_cpu) ? "yes" : "no");
  const quanta::AllocatorStats memory = quanta::allocator_stats(device);
  std::printf("memory there: %zu bytes in use, %zu kept for reuse\n", memory.in_use, memory.cached);

  // Host code that asks for elements there is told so; nothing is copied in silence.
  try {
    static_cast<void>(x.to(device).data<float>());
  } catch (const quanta::UnsupportedError& error) {
    std::printf("refused: %s\n", error.what());
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && (argc != 3 || std::string_view(argv[1]) != "--device")) {
    std::puts(
        "usage: devices [--device NAME]\n"
        "An int8 network on another device, with the CPU's codes.\n"
        "  --device NAME   cuda, cuda:1, or cuda:emulated (the default)");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  try {
    return run(argc == 3 ? Device::parse(argv[2]) : Device::cuda_emulated());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "devices: %s\n", error.what());
    return 1;
  }
}
