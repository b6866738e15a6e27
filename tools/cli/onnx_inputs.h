#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "quanta/fusion/graph/model.h"
#include "quanta/runtime/onnx_file.h"
#include "quanta/runtime/tensor.h"

// What the commands feed networks from files with. Functions throw ArgumentError that says what the
// option has to look like, and FileError.

namespace quanta::cli {

/// How pictures become inputs: (pixel / 255 - mean) / std, resized to `size` ("224x224"; else the
/// sizes that the file declares, else the picture's own).
struct PictureOptions {
  std::string size{};
  std::vector<float> mean{};  ///< none: 0 and 1
  std::vector<float> std{};
};

using SizesByName = std::map<std::string, Dims, std::less<>>;

/// Inputs that somebody has to give: those that are no initializers, without `constants`.
std::vector<OnnxValue> free_inputs(const OnnxModel& model,
                                   const graph::NamedTensors& constants = {});

/// "sr=16000": constants for LoadOptions, in the dtype that the file declares.
graph::NamedTensors read_constants(const std::vector<std::string>& texts, const OnnxModel& model);

/// "x=1,3,224,224", or without "x=" for an only input.
SizesByName read_sizes(const std::vector<std::string>& texts, const std::vector<OnnxValue>& inputs);

/// "x=data.npy" likewise: name and path.
std::pair<std::string, std::string> split_input(const std::string& text,
                                                const std::vector<OnnxValue>& inputs,
                                                std::string_view option);

/// Sizes of an input: `sizes` where it is in there, else as declared with 1 for what is free.
Dims sizes_of(const OnnxValue& input, const SizesByName& sizes);
Tensor zero_input(const OnnxValue& input, const SizesByName& sizes);
/// Normally distributed floats, integers 0 and 1, bytes of any value; the same each time.
Tensor random_input(const OnnxValue& input, const SizesByName& sizes, std::uint64_t seed = 1);

/// "random", a .npy, .npz, .pb or .safetensors file, a picture, or a folder of pictures (a batch).
Tensor read_input(const OnnxValue& input, const std::string& text, const SizesByName& sizes,
                  const PictureOptions& pictures);

/// Calibration inputs, each read when it is asked for.
class Samples {
 public:
  /// `path`: a folder of pictures, of files that hold one sample each, or of test_data_set_* with
  /// input_*.pb; or one file whose arrays (by the inputs' names) hold samples along their first
  /// dimension, given `batch` at a time where the network takes any number. `random`: 8 samples. At
  /// most `limit` samples.
  static Samples open(const std::string& path, const std::vector<OnnxValue>& inputs,
                      const SizesByName& sizes, const PictureOptions& pictures, std::int64_t batch,
                      std::int64_t limit);

  std::int64_t size() const { return static_cast<std::int64_t>(make_.size()); }
  graph::NamedTensors operator[](std::int64_t i) const {
    return make_[static_cast<std::size_t>(i)]();
  }

 private:
  std::vector<std::function<graph::NamedTensors()>> make_;
};

/// "FLOAT [N, 3, 224, 224]"
std::string declared_text(const OnnxValue& value);

}  // namespace quanta::cli
