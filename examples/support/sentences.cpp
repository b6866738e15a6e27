#include "support/sentences.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "quanta/runtime/error.h"

namespace quanta::examples {

std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw FileError("cannot open " + path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) lines.push_back(line);
  }
  if (lines.size() < 2) throw FileError(path + ": expected two or more lines of text");
  return lines;
}

std::vector<std::vector<float>> encode(const nn::models::SentenceEncoder& encoder,
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

void compare_on_device(NamedEncoders& encoders, Device device, std::vector<std::string> sentences) {
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

}  // namespace quanta::examples
