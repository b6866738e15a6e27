#include "onnx_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "quanta/nn/data/image.h"
#include "quanta/nn/data/npy.h"
#include "quanta/nn/data/transforms.h"
#include "quanta/ops/cat.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/random.h"
#include "quanta/runtime/safetensors.h"

namespace quanta::cli {
namespace {

namespace fs = std::filesystem;
using graph::NamedTensors;

std::vector<std::string> names_of(const std::vector<OnnxValue>& inputs) {
  std::vector<std::string> names;
  for (const OnnxValue& input : inputs) names.push_back(input.name);
  return names;
}

const OnnxValue& input_named(const std::string& name, const std::vector<OnnxValue>& inputs,
                             std::string_view option) {
  for (const OnnxValue& input : inputs) {
    if (input.name == name) return input;
  }
  throw ArgumentError(fmt::format("{}: expected one of the inputs {}, got '{}'", option,
                                  fmt::join(names_of(inputs), ", "), name));
}

DType dtype_of_input(const OnnxValue& input) {
  const std::optional<DType> dtype = dtype_of(input.type);
  if (!dtype) {
    throw UnsupportedError(
        fmt::format("input '{}': Quanta has no tensors of {}", input.name, to_string(input.type)));
  }
  return *dtype;
}

template <typename T>
T parse_number(std::string_view text, std::string_view option) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) {
    throw ArgumentError(fmt::format("{}: expected a number, got '{}'", option, text));
  }
  return value;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    if (end == text.size()) return parts;
    begin = end + 1;
  }
}

/// How the file spells its name's end, in lower case.
std::string extension_of(const fs::path& path) {
  std::string text = path.extension().string();
  std::transform(text.begin(), text.end(), text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  return text;
}

bool is_picture(const fs::path& path) {
  constexpr std::array kEnds = {".png", ".jpg", ".jpeg", ".ppm", ".pgm"};
  const std::string end = extension_of(path);
  return std::find(kEnds.begin(), kEnds.end(), end) != kEnds.end();
}

/// In the input's dtype. Floats and integers may change their width (numpy's are wide); anything else
/// is a mistake.
Tensor as_declared(const OnnxValue& input, const Tensor& x, const std::string& where) {
  const DType wanted = dtype_of_input(input);
  if (x.dtype() == wanted) return x;
  const bool both_float = is_floating_point(x.dtype()) && is_floating_point(wanted);
  const auto is_wide = [](DType dtype) { return dtype == DType::Int32 || dtype == DType::Int64; };
  if (both_float || (is_wide(x.dtype()) && is_wide(wanted))) return x.to(wanted);
  throw ArgumentError(fmt::format("{}: expected {} for input '{}', got {}", where,
                                  torch_name(wanted), input.name, torch_name(x.dtype())));
}

data::NamedArrays arrays_of(const fs::path& path) {
  const std::string end = extension_of(path);
  if (end == ".npz") return data::read_npz(path, FileAccess::Map);
  if (end == ".npy") return {{std::string(), data::read_npy(path, FileAccess::Map)}};
  if (end == ".pb") {
    const OnnxTensor tensor = read_onnx_tensor(path);
    if (!tensor.value.defined()) {
      throw UnsupportedError(
          fmt::format("{}: Quanta has no tensors of {}", path.string(), to_string(tensor.type)));
    }
    return {{tensor.name, tensor.value}};
  }
  if (end != ".safetensors") {
    throw ArgumentError(fmt::format(
        "{}: expected .npy, .npz, .pb, .safetensors, .png, .jpg, .ppm or .pgm", path.string()));
  }
  data::NamedArrays arrays;
  for (const auto& [name, tensor] : read_safetensors(path, FileAccess::Map))
    arrays.emplace(name, tensor);
  return arrays;
}

/// The array of that name, or the only one there is.
Tensor array_for(const OnnxValue& input, const fs::path& path, bool is_only_input) {
  const data::NamedArrays arrays = arrays_of(path);
  auto found = arrays.find(input.name);
  if (found == arrays.end() && arrays.size() == 1 && is_only_input) found = arrays.begin();
  if (found == arrays.end()) {
    std::vector<std::string> names;
    for (const auto& [name, array] : arrays) names.push_back(name);
    throw ArgumentError(fmt::format("{}: expected an array '{}', as the input is named, got {}",
                                    path.string(), input.name, fmt::join(names, ", ")));
  }
  return as_declared(input, found->second, path.string());
}

std::optional<std::int64_t> declared(const OnnxValue& input, std::size_t dim) {
  if (!input.sizes || input.sizes->size() != 4) return std::nullopt;
  const std::optional<std::int64_t> size = (*input.sizes)[dim].size;
  return size && *size > 0 ? size : std::nullopt;
}

/// [1, C, H, W]
Tensor read_picture(const OnnxValue& input, const fs::path& path, const SizesByName& sizes,
                    const PictureOptions& options) {
  std::optional<std::int64_t> channels = declared(input, 1);
  std::optional<std::int64_t> height = declared(input, 2);
  std::optional<std::int64_t> width = declared(input, 3);
  if (const auto found = sizes.find(input.name);
      found != sizes.end() && found->second.size() == 4) {
    channels = found->second[1];
    height = found->second[2];
    width = found->second[3];
  }
  if (!options.size.empty()) {
    const auto parts = split(options.size, 'x');
    if (parts.size() != 2) {
      throw ArgumentError(
          fmt::format("--size: expected HEIGHTxWIDTH, as 224x224, got '{}'", options.size));
    }
    height = parse_number<std::int64_t>(parts[0], "--size");
    width = parse_number<std::int64_t>(parts[1], "--size");
  }
  if ((input.sizes && input.sizes->size() != 4) || (channels && *channels != 1 && *channels != 3)) {
    throw ArgumentError(fmt::format(
        "{}: expected an input of pictures [N, 1 or 3, H, W], got '{}': {}; give a .npy file",
        path.string(), input.name, declared_text(input)));
  }
  const bool is_grey = channels && *channels == 1;
  Tensor x = data::read_image(path, is_grey ? data::ImageMode::Grey : data::ImageMode::Rgb);
  Generator unused;
  if (height || width) {
    x = data::resize(height.value_or(x.size(1)), width.value_or(x.size(2)))(x, unused);
  }
  if (dtype_of_input(input) != DType::UInt8) {
    const std::size_t count = is_grey ? 1 : 3;
    std::vector<float> mean = options.mean.empty() ? std::vector<float>(count, 0.0F) : options.mean;
    std::vector<float> std = options.std.empty() ? std::vector<float>(count, 1.0F) : options.std;
    if (mean.size() == 1) mean.resize(count, mean[0]);
    if (std.size() == 1) std.resize(count, std[0]);
    x = data::normalize(std::move(mean), std::move(std))(x, unused);
  }
  return as_declared(input, x.unsqueeze(0), path.string());
}

/// The folder's files that `wanted` takes, with those of folders in it, in the order of names.
std::vector<fs::path> files_below(const fs::path& folder, bool (*wanted)(const fs::path&)) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file() && wanted(entry.path())) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

bool is_array_file(const fs::path& path) {
  const std::string end = extension_of(path);
  return end == ".npy" || end == ".npz" || end == ".safetensors";
}

NamedTensors read_test_set(const fs::path& folder, const std::vector<OnnxValue>& inputs) {
  NamedTensors sample;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const fs::path path = folder / fmt::format("input_{}.pb", i);
    const OnnxTensor tensor = read_onnx_tensor(path);
    if (!tensor.value.defined()) {
      throw UnsupportedError(
          fmt::format("{}: Quanta has no tensors of {}", path.string(), to_string(tensor.type)));
    }
    sample[inputs[i].name] = as_declared(inputs[i], tensor.value, path.string());
  }
  return sample;
}

/// How many of an array's first dimension one call takes, and whether that dimension is the call's.
struct Slicing {
  std::int64_t step = 1;
  bool drops = false;  ///< the dimension counts calls, and is none of the input's
  bool whole = false;  ///< the network takes that many only: what is left over is left out

  std::int64_t calls(std::int64_t size) const {
    return whole ? size / step : (size + step - 1) / step;
  }
  Tensor piece(const Tensor& array, std::int64_t call) const {
    if (drops) return array.select(0, call);
    return array.slice(0, call * step, std::min((call + 1) * step, array.size(0)));
  }
};

Slicing slicing_of(const OnnxValue& input, const Tensor& array, std::int64_t batch,
                   const std::string& path) {
  if (!input.sizes) return {.step = batch};
  const auto rank = static_cast<std::int64_t>(input.sizes->size());
  if (array.dim() == rank + 1) return {.drops = true};
  if (array.dim() != rank || rank == 0) {
    throw ArgumentError(
        fmt::format("{}: '{}': expected {} with a dimension that counts samples, got {}", path,
                    input.name, declared_text(input), array.sizes()));
  }
  const std::optional<std::int64_t> fixed = input.sizes->front().size;
  if (!fixed || *fixed <= 0) return {.step = batch};
  if (array.size(0) < *fixed) {
    throw ArgumentError(
        fmt::format("{}: '{}': expected at least {} samples, as the network takes, "
                    "got {}",
                    path, input.name, *fixed, array.size(0)));
  }
  return {.step = *fixed, .whole = true};
}

}  // namespace

std::string declared_text(const OnnxValue& value) {
  if (value.type == OnnxType::Undefined) return "(no tensor)";
  if (!value.sizes) return to_string(value.type) + " of any sizes";
  std::vector<std::string> dims;
  for (const OnnxDim& dim : *value.sizes) {
    if (dim.size && *dim.size >= 0) {
      dims.push_back(std::to_string(*dim.size));
    } else {
      dims.push_back(dim.name.empty() ? "?" : dim.name);
    }
  }
  return fmt::format("{} [{}]", to_string(value.type), fmt::join(dims, ", "));
}

std::vector<OnnxValue> free_inputs(const OnnxModel& model, const NamedTensors& constants) {
  std::vector<OnnxValue> inputs;
  for (const OnnxValue& input : model.graph.inputs) {
    const auto& weights = model.graph.initializers;
    const bool is_weight =
        std::any_of(weights.begin(), weights.end(),
                    [&](const OnnxTensor& weight) { return weight.name == input.name; });
    if (!is_weight && !constants.contains(input.name)) inputs.push_back(input);
  }
  return inputs;
}

NamedTensors read_constants(const std::vector<std::string>& texts, const OnnxModel& model) {
  NamedTensors constants;
  for (const std::string& text : texts) {
    const auto [name, numbers] = split_input(text, free_inputs(model), "--set");
    const std::vector<OnnxValue> inputs = free_inputs(model);
    const OnnxValue& input = input_named(name, inputs, "--set");
    const DType dtype = dtype_of_input(input);
    std::vector<Tensor> values;
    for (const std::string_view number : split(numbers, ',')) {
      // As integers where they are: not all of 64 bits are doubles.
      const Tensor value =
          is_floating_point(dtype)
              ? Tensor::scalar(parse_number<double>(number, "--set"), dtype)
              : Tensor::from_int64(std::vector{parse_number<std::int64_t>(number, "--set")})
                    .to(dtype);
      values.push_back(value.reshape({1}));
    }
    const Tensor all = cat(values, 0);
    const std::size_t rank = input.sizes ? input.sizes->size() : (values.size() == 1 ? 0 : 1);
    if (values.size() != 1 && rank != 1) {
      throw ArgumentError(fmt::format("--set: {}: expected one number for {}, got {}", name,
                                      declared_text(input), values.size()));
    }
    constants[name] = rank == 1 ? all : all.reshape(Dims::filled(rank, 1));
  }
  return constants;
}

std::pair<std::string, std::string> split_input(const std::string& text,
                                                const std::vector<OnnxValue>& inputs,
                                                std::string_view option) {
  const std::size_t equals = text.find('=');
  if (equals != std::string::npos) {
    const std::string name = text.substr(0, equals);
    return {input_named(name, inputs, option).name, text.substr(equals + 1)};
  }
  if (inputs.size() == 1) return {inputs[0].name, text};
  throw ArgumentError(fmt::format("{}: expected NAME={}: the network has {} inputs ({})", option,
                                  text, inputs.size(), fmt::join(names_of(inputs), ", ")));
}

SizesByName read_sizes(const std::vector<std::string>& texts,
                       const std::vector<OnnxValue>& inputs) {
  SizesByName sizes;
  for (const std::string& text : texts) {
    const auto [name, numbers] = split_input(text, inputs, "--sizes");
    Dims dims;
    if (!numbers.empty()) {
      for (const std::string_view number : split(numbers, ',')) {
        if (dims.size() == Dims::kMaxDims) {
          throw ArgumentError(
              fmt::format("--sizes: {}: expected at most {} sizes", name, Dims::kMaxDims));
        }
        dims.push_back(parse_number<std::int64_t>(number, "--sizes"));
        if (dims.back() < 0) {
          throw ArgumentError(fmt::format("--sizes: {}: expected sizes >= 0, got {}", name, dims));
        }
      }
    }
    sizes[name] = dims;
  }
  return sizes;
}

Dims sizes_of(const OnnxValue& input, const SizesByName& sizes) {
  if (const auto found = sizes.find(input.name); found != sizes.end()) return found->second;
  if (!input.sizes) {
    throw ArgumentError(fmt::format("input '{}': the file declares no sizes: give --sizes {}=...",
                                    input.name, input.name));
  }
  Dims dims;
  for (const OnnxDim& dim : *input.sizes) {
    dims.push_back(dim.size && *dim.size > 0 ? *dim.size : 1);
  }
  return dims;
}

Tensor zero_input(const OnnxValue& input, const SizesByName& sizes) {
  return Tensor::zeros(sizes_of(input, sizes), dtype_of_input(input));
}

Tensor random_input(const OnnxValue& input, const SizesByName& sizes, std::uint64_t seed) {
  const DType dtype = dtype_of_input(input);
  const Dims dims = sizes_of(input, sizes);
  Generator generator(seed);
  if (is_floating_point(dtype)) return randn(dims, generator).to(dtype);
  // 0 and 1 are right as tokens, positions and masks of every network.
  return randint(0, dtype == DType::UInt8 ? 256 : 2, dims, dtype, generator);
}

Tensor read_input(const OnnxValue& input, const std::string& text, const SizesByName& sizes,
                  const PictureOptions& pictures) {
  if (text == "random") return random_input(input, sizes);
  const fs::path path(text);
  if (!fs::exists(path)) {
    throw FileError(
        fmt::format("--input: {}: expected 'random', a file or a folder of pictures, got "
                    "'{}', which is not there",
                    input.name, text));
  }
  if (!fs::is_directory(path)) {
    return is_picture(path) ? read_picture(input, path, sizes, pictures)
                            : array_for(input, path, true);
  }
  std::vector<Tensor> batch;
  for (const fs::path& file : files_below(path, is_picture)) {
    batch.push_back(read_picture(input, file, sizes, pictures));
  }
  if (batch.empty()) {
    throw FileError(fmt::format("{}: expected .png, .jpg, .ppm or .pgm files in it", text));
  }
  return cat(batch, 0);
}

Samples Samples::open(const std::string& text, const std::vector<OnnxValue>& inputs,
                      const SizesByName& sizes, const PictureOptions& pictures, std::int64_t batch,
                      std::int64_t limit) {
  Samples samples;
  auto& make = samples.make_;
  const auto has_room = [&] { return static_cast<std::int64_t>(make.size()) < limit; };
  const fs::path path(text);
  if (text == "random") {
    constexpr std::uint64_t kRandomSamples = 8;
    for (std::uint64_t seed = 1; seed <= kRandomSamples && has_room(); ++seed) {
      make.emplace_back([=] {
        NamedTensors sample;
        for (const OnnxValue& input : inputs) sample[input.name] = random_input(input, sizes, seed);
        return sample;
      });
    }
    return samples;
  }
  if (!fs::exists(path)) {
    throw FileError(
        fmt::format("--calib: expected a folder or file with inputs of the network, got "
                    "'{}', which is not there",
                    text));
  }
  const auto add_picture = [&](const fs::path& file) {
    if (inputs.size() != 1) {
      throw ArgumentError(fmt::format(
          "--calib: {}: expected .npz files with arrays {}: pictures are for networks of one input",
          text, fmt::join(names_of(inputs), ", ")));
    }
    make.emplace_back([=] {
      return NamedTensors{{inputs[0].name, read_picture(inputs[0], file, sizes, pictures)}};
    });
  };
  if (is_picture(path)) {
    add_picture(path);
  } else if (!fs::is_directory(path)) {
    NamedTensors arrays;
    std::int64_t calls = -1;
    for (const OnnxValue& input : inputs) {
      const Tensor array = array_for(input, path, inputs.size() == 1);
      const Slicing slicing = slicing_of(input, array, batch, text);
      const std::int64_t count = slicing.calls(array.size(0));
      if (calls >= 0 && calls != count) {
        throw ArgumentError(
            fmt::format("{}: '{}': expected {} samples, as the other inputs have, got {}", text,
                        input.name, calls, count));
      }
      calls = count;
      arrays[input.name] = array;
    }
    for (std::int64_t i = 0; i < calls && has_room(); ++i) {
      make.emplace_back([=] {
        NamedTensors sample;
        for (const OnnxValue& input : inputs) {
          const Tensor& array = arrays.find(input.name)->second;
          sample[input.name] = slicing_of(input, array, batch, text).piece(array, i);
        }
        return sample;
      });
    }
  } else if (fs::exists(path / "test_data_set_0") || fs::exists(path / "input_0.pb")) {
    std::vector<fs::path> sets;
    if (fs::exists(path / "input_0.pb")) sets.push_back(path);
    for (const auto& entry : fs::directory_iterator(path)) {
      if (entry.path().filename().string().starts_with("test_data_set_")) {
        sets.push_back(entry.path());
      }
    }
    std::sort(sets.begin(), sets.end());
    for (const fs::path& set : sets) {
      if (has_room()) make.emplace_back([=] { return read_test_set(set, inputs); });
    }
  } else {
    for (const fs::path& file : files_below(path, is_picture)) {
      if (has_room()) add_picture(file);
    }
    for (const fs::path& file : files_below(path, is_array_file)) {
      if (!has_room()) break;
      make.emplace_back([=] {
        NamedTensors sample;
        for (const OnnxValue& input : inputs) {
          sample[input.name] = array_for(input, file, inputs.size() == 1);
        }
        return sample;
      });
    }
  }
  if (make.empty()) {
    throw FileError(fmt::format(
        "--calib: {}: expected pictures, .npy, .npz, .safetensors or test_data_set_* folders in it",
        text));
  }
  return samples;
}

}  // namespace quanta::cli
