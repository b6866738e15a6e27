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
#include <exception>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "console/measure.h"
#include "quanta/quanta.h"
#include "support/help.h"

namespace {

using quanta::Tensor;
using quanta::nn::models::SentenceEncoder;
using quanta::nn::quantized::dynamic::set_reduce_range;

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw quanta::FileError("sentence_similarity: cannot open " + path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.size() < 2) throw quanta::FileError(path + ": expected two or more lines of text");
  return lines;
}

// One vector of length 1 for each sentence, encoded one at a time.
std::vector<std::vector<float>> encode(const SentenceEncoder& encoder,
                                       const std::vector<std::string>& sentences) {
  std::vector<std::vector<float>> vectors;
  vectors.reserve(sentences.size());
  for (const std::string& sentence : sentences) {
    vectors.push_back(encoder.encode(sentence).to_float_vector());
  }
  return vectors;
}

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0.0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

void print_neighbours(const std::vector<std::string>& sentences,
                      const std::vector<std::vector<float>>& vectors) {
  std::printf("\nnearest sentences (float):\n");
  for (const std::size_t i : {std::size_t{0}, sentences.size() / 3, sentences.size() / 2}) {
    std::size_t best = i == 0 ? 1 : 0;
    for (std::size_t j = 0; j < sentences.size(); ++j) {
      if (j != i && dot(vectors[i], vectors[j]) > dot(vectors[i], vectors[best])) best = j;
    }
    std::printf("  %.2f  %s\n        %s\n", dot(vectors[i], vectors[best]), sentences[i].c_str(),
                sentences[best].c_str());
  }
}

// The same on another device.
void compare_on_device(std::vector<std::pair<const char*, SentenceEncoder>>& encoders,
                       quanta::Device device, std::vector<std::string> sentences) {
  // The test device is some ten thousand times slower than a GPU.
  if (device.is_emulated()) sentences.resize(std::min<std::size_t>(sentences.size(), 3));
  std::printf("\non %s (%s), %zu sentences\n", to_string(device).c_str(),
              device_name(device).c_str(), sentences.size());
  std::printf("%-28s %22s %16s\n", "", "equal to the CPU's", "least cosine");
  for (auto& [name, encoder] : encoders) {
    const auto expected = encode(encoder, sentences);
    encoder.model.to(device);
    const auto given = encode(encoder, sentences);
    std::size_t equal = 0;
    double least = 1.0;
    for (std::size_t s = 0; s < sentences.size(); ++s) {
      equal += given[s] == expected[s] ? 1 : 0;
      least = std::min(least, dot(given[s], expected[s]));
    }
    std::printf("%-28s %15zu of %3zu %16.6f\n", name, equal, sentences.size(), least);
  }
}

// Four-bit weights whose codes are chosen by what the layers are given.
void add_calibrated(std::vector<std::pair<const char*, SentenceEncoder>>& encoders,
                    const std::vector<std::string>& sentences) {
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
  std::vector<std::string> sentences = read_lines(sentences_path);
  const auto encoder = SentenceEncoder::from_directory(directory);

  // The tokenizer is shared; each model is a copy of the float one with other linear layers.
  std::vector<std::pair<const char*, SentenceEncoder>> encoders;
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
  print_neighbours(sentences, reference);
  if (!device.is_cpu()) compare_on_device(encoders, device, sentences);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr const char* kUsage =
      "sentence_similarity [--gptq] [--device NAME] [MODEL-DIRECTORY [SENTENCES.txt]]\n"
      "all-MiniLM-L6-v2 quantized three ways; with --gptq also by methods that look at half of the "
      "sentences.";
  if (quanta::examples::asked_for_help(argc, argv, kUsage)) return 0;
  try {
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
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
