#pragma once

#include <string>
#include <utility>
#include <vector>

#include "quanta/nn/models/bert.h"
#include "quanta/runtime/device.h"

namespace quanta::examples {

/// Forms of one sentence encoder, as a table names them.
using NamedEncoders = std::vector<std::pair<const char*, nn::models::SentenceEncoder>>;

/// The lines of a text file that are not empty. Throws FileError for fewer than two.
std::vector<std::string> read_lines(const std::string& path);

/// One vector of length 1 for each sentence, encoded one at a time.
std::vector<std::vector<float>> encode(const nn::models::SentenceEncoder& encoder,
                                       const std::vector<std::string>& sentences);

/// The scalar product: of vectors of length 1, the cosine between them.
double dot(const std::vector<float>& a, const std::vector<float>& b);

/// Of some sentences, the other one whose vector is the nearest.
void print_neighbours(const std::vector<std::string>& sentences,
                      const std::vector<std::vector<float>>& vectors);

/// Encodes on another device, to which the encoders' models are moved: how many vectors are the
/// CPU's, to the last bit, and how near the others are.
void compare_on_device(NamedEncoders& encoders, Device device, std::vector<std::string> sentences);

}  // namespace quanta::examples
