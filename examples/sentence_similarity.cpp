// A real transformer, quantized three ways: the sentence encoder all-MiniLM-L6-v2 in float, with
// dynamic int8 layers, and with weights alone in 8 and 4 bits. Each encodes the 100 sentences of
// examples/data/sentences.txt; the table says how near its vectors are to float's, how long a
// sentence takes, and how many bytes the model holds.
//
// `tools/run example sentence_similarity` fetches the model first (tools/setup --minilm).
//
//   sentence_similarity [--gptq] [--device NAME] [MODEL-DIRECTORY [SENTENCES.txt]]
//
// With --gptq the first half of the sentences is data for two methods that choose codes of 4 bits with
// it, AWQ and GPTQ, and the table is about the other half alone.
// With --device (cuda, cuda:1, cuda:emulated) each encodes them there as well, and a second table
// says how many vectors are the CPU's, to the last bit. Those of the dynamic layers are; float
// products add in another order, and so do weights of 8 and 4 bits alone.

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "console/measure.h"
#include "quanta/quanta.h"
#include "support/help.h"
#include "support/sentences.h"

namespace {

using quanta::Tensor;
using quanta::examples::dot;
using quanta::examples::encode;
using quanta::examples::NamedEncoders;
using quanta::nn::models::SentenceEncoder;
using quanta::nn::quantized::dynamic::set_reduce_range;

// Four-bit weights whose codes are chosen by what the layers are given.
void add_calibrated(NamedEncoders& encoders, const std::vector<std::string>& sentences) {
  const SentenceEncoder encoder = encoders[0].second;
  std::vector<Tensor> tokens;
  for (const std::string& sentence : sentences) {
    const auto numbers = encoder.tokenizer().encode(sentence);
    tokens.push_back(
        Tensor::from_int64(numbers).reshape({1, static_cast<std::int64_t>(numbers.size())}));
  }
  const quanta::CalibrationData data(tokens);
  const quanta::WeightOnlyOptions int4{.bits = 4, .group_size = 32, .symmetric = false};
  const quanta::WeightOnlyFilter used{.skip = {"pooler"}};  // which takes no part in a vector
  encoders.emplace_back(
      "int4, AWQ",
      SentenceEncoder(encoder.tokenizer(),
                      quanta::quantize_weight_only(quanta::awq(encoder.model, int4, data, {}, used),
                                                   int4, used)));
  // Little data: more damping than the usual 0.01.
  encoders.emplace_back(
      "int4, GPTQ",
      SentenceEncoder(encoder.tokenizer(),
                      quanta::gptq_weight_only(
                          encoder.model, data, int4,
                          {.percdamp = 0.1, .act_order = true, .static_groups = true}, used)));
}

int run(const std::string& directory, const std::string& sentences_path, quanta::Device device,
        bool with_gptq) {
  device_name(device);  // throws where there is none
  std::vector<std::string> sentences = quanta::examples::read_lines(sentences_path);
  const auto encoder = SentenceEncoder::from_directory(directory);

  // The tokenizer is shared; each model is a copy of the float one with other linear layers.
  NamedEncoders encoders;
  encoders.emplace_back("float32", encoder);
  const auto add = [&](const char* name, quanta::nn::models::BertModel model) {
    encoders.emplace_back(name, SentenceEncoder(encoder.tokenizer(), std::move(model)));
  };
  // torch's defaults: one scale a weight, 7-bit activations; then a scale for each channel, 8 bits.
  add("dynamic int8, torch's way", quanta::quantize_dynamic(encoder.model));
  auto dynamic = quanta::quantize_dynamic(
      encoder.model,
      quanta::DynamicSpec().add_type<quanta::nn::Linear>(quanta::per_channel_dynamic_qconfig()));
  set_reduce_range(dynamic, quanta::quantized::ReduceRange::No);
  add("dynamic int8, per channel", std::move(dynamic));
  add("weight-only int8", quanta::quantize_weight_only(encoder.model, {.bits = 8}));
  add("weight-only int4, group 32",
      quanta::quantize_weight_only(encoder.model,
                                   {.bits = 4, .group_size = 32, .symmetric = false}));
  if (with_gptq) {
    const auto half = sentences.begin() + static_cast<std::ptrdiff_t>(sentences.size() / 2);
    add_calibrated(encoders, {sentences.begin(), half});
    sentences.erase(sentences.begin(), half);
  }

  std::vector<std::function<void()>> calls;
  calls.reserve(encoders.size());
  for (const auto& [name, one] : encoders) {
    calls.emplace_back([&encoder = one, &sentences] { encode(encoder, sentences); });
  }
  const std::vector<double> ms = quanta::console::median_ms(calls, 3);

  std::printf("%zu sentences, one at a time, %d threads\n", sentences.size(),
              quanta::get_num_threads());
  std::printf("%-28s %12s %12s %24s %12s\n", "", "mean cosine", "least", "ms per sentence",
              "bytes");
  const auto reference = encode(encoders[0].second, sentences);
  for (std::size_t i = 0; i < encoders.size(); ++i) {
    const auto vectors = encode(encoders[i].second, sentences);
    double sum = 0.0;
    double least = 1.0;
    for (std::size_t s = 0; s < sentences.size(); ++s) {
      sum += dot(reference[s], vectors[s]);
      least = std::min(least, dot(reference[s], vectors[s]));
    }
    const auto count = static_cast<double>(sentences.size());
    std::printf("%-28s %12.4f %12.4f %14.2f (%5.2fx) %12zu\n", encoders[i].first, sum / count,
                least, ms[i] / count, ms[0] / ms[i],
                quanta::console::weight_bytes(encoders[i].second.model));
  }
  quanta::examples::print_neighbours(sentences, reference);
  if (!device.is_cpu()) quanta::examples::compare_on_device(encoders, device, sentences);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "sentence_similarity [--gptq] [--device NAME] [MODEL-DIRECTORY [SENTENCES.txt]]\n"
      "all-MiniLM-L6-v2 quantized three ways; with --gptq also by methods that look at half of the "
      "sentences.";
  return quanta::examples::run_main(argc, argv, kUsage, [&] {
    const bool with_gptq = argc > 1 && std::string_view(argv[1]) == "--gptq";
    if (with_gptq) {
      --argc;
      ++argv;
    }
    auto device = quanta::Device::cpu();
    if (argc > 2 && std::string_view(argv[1]) == "--device") {
      device = quanta::Device::parse(argv[2]);
      argc -= 2;
      argv += 2;
    }
    return run(argc > 1 ? argv[1] : QUANTA_MINILM_DIR,
               argc > 2 ? argv[2] : QUANTA_DEMO_DATA_DIR "/sentences.txt", device, with_gptq);
  });
}
