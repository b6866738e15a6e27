// Files of save_model with packed weights.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "ops/instruction_sets.h"
#include "quanta/fusion/detail/packed_weights.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/quantize_dynamic.h"
#include "quanta/nn/models/recurrent.h"
#include "quanta/nn/skip_init.h"
#include "quanta/runtime/detail/warning_capture.h"
#include "quanta/runtime/error.h"
#include "quanta/runtime/safetensors.h"
#include "small_network.h"
#include "support/files.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta::test {
namespace {

using Counts = detail::PackedForms::Counts;

constexpr SaveOptions kWithPacked{.packed = SavePacked::Yes};
const std::string kKey = "quanta.packed";

/// A network before anything is loaded into it, and what runs it.
struct Subject {
  std::function<std::shared_ptr<nn::Module>()> make, make_int8;
  Tensor x;
};

Subject convolutions() {
  return {[] { return nn::make_module<SmallNetwork>(); },
          [] { return nn::make_module<SmallNetwork>(convert(calibrated_network())); },
          small_input(9)};
}

Subject recurrent() {
  const auto make = [] {
    const nn::RecurrentOptions options{
        .input_size = 20, .hidden_size = 24, .num_layers = 2, .batch_first = true};
    const auto net = nn::make_module<nn::models::LstmClassifier>(options, 40);
    net->eval();
    return net;
  };
  return {make,
          [make] {
            const auto net = make();
            quantize_dynamic_(*net);
            return net;
          },
          random_tensor({3, 5, 20}, 4)};
}

/// Saves an int8 network with packed weights, and gives its result.
Tensor save(const Subject& subject, const std::filesystem::path& path) {
  const std::shared_ptr<nn::Module> int8 = subject.make_int8();
  const Tensor y = (*int8)(subject.x);
  save_model(*int8, path, kWithPacked);
  return y;
}

struct Loaded {
  std::shared_ptr<nn::Module> model;
  Tensor y;
  Counts counts;  ///< of loading and running
  std::size_t warnings = 0;
};

Loaded load_and_run(const Subject& subject, const std::filesystem::path& path) {
  const detail::WarningCapture warnings;
  const Counts before = detail::PackedForms::counts();
  Loaded result{subject.make(), {}, {}};
  load_model(*result.model, path);
  result.y = (*result.model)(subject.x);
  const Counts after = detail::PackedForms::counts();
  result.counts = {after.packed - before.packed, after.found - before.found};
  result.warnings = warnings.texts().size();
  return result;
}

void write_with(const SafetensorsFile& file, const std::string& packed,
                const std::filesystem::path& path) {
  auto metadata = file.metadata;
  metadata[kKey] = packed;
  write_safetensors(file.tensors, path, metadata);
}

}  // namespace

TEST_CASE("save_model with packed weights: the loaded model packs nothing and gives the same") {
  for (const Subject& subject : {convolutions(), recurrent()}) {
    const TemporaryFile file;
    const Tensor y = save(subject, file.path);
    for (const int threads : {1, 2}) {
      const Threads guard(threads);
      const Loaded loaded = load_and_run(subject, file.path);
      CHECK(loaded.y.equal(y));
      CHECK(loaded.counts.packed == 0);
      CHECK(loaded.counts.found > 0);
      CHECK(loaded.warnings == 0);
    }
  }
}

TEST_CASE("save_model with packed weights: a loaded model can be saved again") {
  const Subject subject = recurrent();
  const TemporaryFile file;
  const TemporaryFile again;
  const Tensor y = save(subject, file.path);
  const Loaded loaded = load_and_run(subject, file.path);
  save_model(*loaded.model, again.path, kWithPacked);
  const Loaded twice = load_and_run(subject, again.path);
  CHECK(twice.y.equal(y));
  CHECK(twice.counts.packed == 0);
  save_model(*twice.model, again.path);
  const Loaded plain = load_and_run(subject, again.path);
  CHECK(plain.y.equal(y));
  CHECK(plain.counts.found == 0);
  CHECK(plain.counts.packed == twice.counts.found);
}

TEST_CASE("save_model with packed weights: a network without starting values is filled") {
  const Subject subject = convolutions();
  const TemporaryFile file;
  const Tensor y = save(subject, file.path);
  const std::shared_ptr<nn::Module> net = [&] {
    const nn::SkipInit scope;
    return subject.make();
  }();
  load_model(*net, file.path);
  CHECK((*net)(subject.x).equal(y));
}

TEST_CASE("save_model with packed weights: a model that has not run is refused") {
  const TemporaryFile file;
  const SmallNetwork int8 = convert(calibrated_network());
  CHECK_THROWS_WITH_AS(save_model(int8, file.path, kWithPacked), doctest::Contains("run it once"),
                       ArgumentError);
  CHECK_FALSE(std::filesystem::exists(file.path));
  CHECK_THROWS_AS(save_model(SmallNetwork(), file.path, kWithPacked), ArgumentError);
}

TEST_CASE("save_model with packed weights: forms of codes that were written to stay out") {
  const TemporaryFile file;
  const SmallNetwork int8 = convert(calibrated_network());
  int8(small_input(9));
  for (const auto& [name, tensor] : int8.state_dict()) {
    if (tensor.dtype() == DType::QInt8) tensor.fill_(0.0);
  }
  CHECK_THROWS_AS(save_model(int8, file.path, kWithPacked), ArgumentError);
}

TEST_CASE("load_model: weights packed for other instructions are packed again") {
  // Rows of 20 and 24 codes end elsewhere where there are tiles. oneDNN's layouts stay: its
  // instructions are those of the process.
  const Subject subject = recurrent();
  for_each_instruction_set([&] {
    const TemporaryFile file;
    const cpu::Features features = cpu::features();
    const cpu::Code code = cpu::running_code();
    const std::shared_ptr<nn::Module> int8 = subject.make_int8();
    const Tensor y = (*int8)(subject.x);
    if (code == cpu::Code::Plain) return;  // its kernels keep nothing
    save_model(*int8, file.path, kWithPacked);
    for (const cpu::InstructionSet& set : cpu::kInstructionSets) {
      if (!cpu::can_run(set) || set.code != code) continue;
      CAPTURE(std::string(set.name));
      const cpu::FeatureLimit limit(set.features);
      const Loaded loaded = load_and_run(subject, file.path);
      CHECK(loaded.y.equal(y));
      CHECK(loaded.warnings == 0);
      const bool same = set.features.includes(features) && features.includes(set.features);
      if (same) CHECK(loaded.counts.packed == 0);
      if (set.features.tiles != features.tiles) CHECK(loaded.counts.packed > 0);
    }
  });
}

TEST_CASE("load_model: damaged packed weights are told and packed again") {
  for (const Subject& subject : {convolutions(), recurrent()}) {
    const TemporaryFile file;
    const Tensor y = save(subject, file.path);
    const SafetensorsFile saved = load_safetensors(file.path);
    const Tensor& memory = saved.tensors.at(kKey);
    const std::int64_t words = memory.numel();
    for (std::int64_t word = 0; word < words; word += words / 7 + 1) {
      const Tensor changed = memory.clone();
      changed.mutable_data<std::int64_t>()[word] ^= 0x100;
      SafetensorsFile damaged = saved;
      damaged.tensors.set(kKey, changed);
      write_safetensors(damaged.tensors, file.path, damaged.metadata);
      const Loaded loaded = load_and_run(subject, file.path);
      CHECK(loaded.y.equal(y));
      // A byte between two forms belongs to none.
      CHECK(loaded.warnings == static_cast<std::size_t>(loaded.counts.packed));
    }
    SafetensorsFile zeros = saved;
    zeros.tensors.set(kKey, Tensor::zeros({words}, DType::Int64));
    write_safetensors(zeros.tensors, file.path, zeros.metadata);
    const Loaded loaded = load_and_run(subject, file.path);
    CHECK(loaded.y.equal(y));
    CHECK(loaded.counts.packed > 0);
    CHECK(loaded.counts.found == 0);
  }
}

TEST_CASE("load_model: packed weights of other codes than the file's are not used") {
  const Subject subject = convolutions();
  const TemporaryFile file;
  const Tensor before = save(subject, file.path);
  SafetensorsFile saved = load_safetensors(file.path);
  for (const auto& [name, tensor] : saved.tensors) {
    if (tensor.dtype() == DType::QInt8) tensor.fill_(0.01);
  }
  write_safetensors(saved.tensors, file.path, saved.metadata);
  const Loaded loaded = load_and_run(subject, file.path);
  CHECK(loaded.counts.found == 0);
  CHECK_FALSE(loaded.y.equal(before));
  // What the same file without packed weights gives.
  saved.tensors.erase(kKey);
  saved.metadata.erase(kKey);
  write_safetensors(saved.tensors, file.path, saved.metadata);
  CHECK(load_and_run(subject, file.path).y.equal(loaded.y));
}

TEST_CASE("load_model: packed weights that a tool left out are packed again") {
  const Subject subject = convolutions();
  const TemporaryFile file;
  const Tensor y = save(subject, file.path);
  const SafetensorsFile saved = load_safetensors(file.path);
  const auto check = [&](const StateDict& tensors,
                         const std::map<std::string, std::string>& metadata) {
    write_safetensors(tensors, file.path, metadata);
    const Loaded loaded = load_and_run(subject, file.path);
    CHECK(loaded.y.equal(y));
    CHECK(loaded.counts.found == 0);
    CHECK(loaded.warnings == 0);
  };
  auto metadata = saved.metadata;
  metadata.erase(kKey);
  check(saved.tensors, metadata);
  StateDict without = saved.tensors;
  without.erase(kKey);
  check(without, metadata);
  metadata[kKey] = R"({"format": 2, "forms": "of a newer version"})";
  check(saved.tensors, metadata);
  check(without, metadata);
}

TEST_CASE("load_model: a list of packed weights that save_model does not write is refused") {
  const Subject subject = convolutions();
  const TemporaryFile file;
  save(subject, file.path);
  const SafetensorsFile saved = load_safetensors(file.path);
  const auto bytes = static_cast<std::int64_t>(saved.tensors.at(kKey).nbytes());
  const std::string hashes = R"("0123456789abcdef", "0123456789abcdef")";
  const auto one = [&](const std::string& range) {
    return R"({"format": 1, "forms": [["conv1.weight", "panels", )" + range + ", " + hashes + "]]}";
  };
  std::vector<std::string> lists = {
      "",
      "[",
      "[]",
      "1",
      "{}",
      R"({"format": "1", "forms": []})",
      R"({"format": 1})",
      R"({"format": 1, "forms": {}})",
      R"({"format": 1, "forms": [1]})",
      R"({"format": 1, "forms": [[]]})",
      R"({"format": 1, "forms": [["a", "b", 0, 64, "0123456789abcdef"]]})",
      R"({"format": 1, "forms": [[1, "b", 0, 64, )" + hashes + "]]}",
      R"({"format": 1, "forms": [["a", "b", "0", 64, )" + hashes + "]]}",
      R"({"format": 1, "forms": [["a", "b", 0, 64, "123", "0123456789abcdef"]]})",
      R"({"format": 1, "forms": [["a", "b", 0, 64, "0123456789abcdeg", "0123456789abcdef"]]})",
      one("-64, 64"),
      one("0, 0"),
      one("0, -64"),
      one(fmt::format("0, {}", bytes + 1)),
      one(fmt::format("{}, 64", bytes)),
      one(fmt::format("64, {}", bytes)),
      one("9223372036854775807, 64"),
      one("64, 9223372036854775807"),
      one("1e30, 64"),
      one("0.5, 64")};
  for (const std::string& list : lists) {
    CAPTURE(list);
    write_with(saved, list, file.path);
    SmallNetwork net;
    const std::string before = to_string(net);
    CHECK_THROWS_WITH_AS(load_model(net, file.path), doctest::Contains("quanta.packed"), FileError);
    CHECK(to_string(net) == before);
  }
  for (const Tensor& tensor : {Tensor::zeros({4}), Tensor::zeros({64}, DType::UInt8)}) {
    SafetensorsFile changed = saved;
    changed.tensors.set(kKey, tensor);
    write_safetensors(changed.tensors, file.path, changed.metadata);
    SmallNetwork net;
    CHECK_THROWS_WITH_AS(load_model(net, file.path), doctest::Contains("quanta.packed"), FileError);
  }
  SafetensorsFile changed = saved;
  changed.tensors.erase(kKey);
  write_safetensors(changed.tensors, file.path, changed.metadata);
  SmallNetwork net;
  CHECK_THROWS_WITH_AS(load_model(net, file.path), doctest::Contains("got none"), FileError);
}

TEST_CASE("load_model: files with packed weights that end too soon are refused") {
  const Subject subject = convolutions();
  const TemporaryFile file;
  save(subject, file.path);
  const std::string bytes = read_bytes(file.path);
  for (std::size_t length = 0; length < bytes.size(); length += bytes.size() / 61 + 1) {
    write_bytes(file.path, std::string_view(bytes).substr(0, length));
    SmallNetwork net;
    CHECK_THROWS_AS(load_model(net, file.path), FileError);
  }
}

TEST_CASE("load_model: any byte of a file with packed weights can be wrong") {
  const Subject subject = recurrent();
  const TemporaryFile file;
  const Tensor y = save(subject, file.path);
  const std::string bytes = read_bytes(file.path);
  std::size_t refused = 0;
  for (std::size_t at = 0; at < bytes.size(); at += bytes.size() / 199 + 1) {
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ 0x11);
    write_bytes(file.path, changed);
    try {
      const Loaded loaded = load_and_run(subject, file.path);
      CHECK(loaded.y.sizes() == y.sizes());
    } catch (const Error&) {
      ++refused;
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("load_safetensors: packed weights are a tensor like others") {
  const Subject subject = recurrent();
  const TemporaryFile file;
  save(subject, file.path);
  const SafetensorsFile saved = load_safetensors(file.path);
  CHECK(saved.tensors.at(kKey).dtype() == DType::Int64);
  // Everything else is as in a file without them.
  const TemporaryFile plain;
  const auto int8 = subject.make();
  load_model(*int8, file.path);
  save_model(*int8, plain.path);
  const SafetensorsFile expected = load_safetensors(plain.path);
  CHECK(saved.tensors.size() == expected.tensors.size() + 1);
  for (const auto& [name, tensor] : expected.tensors) {
    CHECK(saved.tensors.at(name).equal(tensor));
  }
}

}  // namespace quanta::test
