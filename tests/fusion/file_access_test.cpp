// What becomes of a model when the file that it was loaded from changes.

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <thread>

#include "quanta/fusion/convert.h"
#include "quanta/fusion/model_file.h"
#include "quanta/fusion/prepare.h"
#include "quanta/nn/conv.h"
#include "quanta/nn/linear.h"
#include "quanta/nn/misc.h"
#include "quanta/nn/quantized/linear.h"
#include "quanta/nn/stubs.h"
#include "quanta/observers/defaults.h"
#include "quanta/runtime/allocator.h"
#include "quanta/runtime/detail/open_file.h"
#include "quanta/runtime/detail/text_file.h"
#include "quanta/runtime/error.h"
#include "small_network.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {

namespace fs = std::filesystem;

void overwrite_in_place(const fs::path& path, std::size_t size) {
  const auto file = fs::file_size(path);
  {
    std::FILE* out = std::fopen(path.c_str(), "r+b");
    REQUIRE(out != nullptr);
    for (std::size_t i = 0; i < file; ++i) std::fputc(0x55, out);
    std::fclose(out);
  }
  fs::resize_file(path, size);
}

}  // namespace

TEST_CASE("load_model: a file that is cut off or overwritten afterwards changes nothing") {
  const SmallNetwork int8 = convert(calibrated_network());
  const Tensor x = small_input(9);
  const Tensor y = int8(x);
  for (const SavePacked packed : {SavePacked::No, SavePacked::Yes}) {
    const TemporaryFolder folder;
    const fs::path file = folder / "model.safetensors";
    save_model(int8, file, {.packed = packed});
    const std::string bytes = read_bytes(file);
    SmallNetwork before;
    load_model(before, file);
    SmallNetwork after;
    load_model(after, file);
    CHECK(after(x).equal(y));
    overwrite_in_place(file, 0);
    // One that ran before and one whose first run comes now.
    for (SmallNetwork* net : {&after, &before}) {
      CHECK((*net)(x).equal(y));
      CHECK(same_state(net->state_dict(), int8.state_dict()));
      save_model(*net, folder / "again.safetensors", {.packed = packed});
      CHECK(read_bytes(folder / "again.safetensors") == bytes);
    }
  }
}

TEST_CASE("load_model: codes are read into the memory that the model keeps") {
  struct Wide : nn::Module {
    nn::Child<nn::QuantStub> quant;
    nn::Child<nn::Conv2d> conv;
    nn::Child<nn::Flatten> flatten;
    nn::Child<nn::Linear> fc;
    Wide() {
      register_module("quant", quant);
      register_module("conv", conv, {.in_channels = 64, .out_channels = 1024, .kernel_size = {4}});
      register_module("flatten", flatten);
      register_module("fc", fc, {.in_features = 1024, .out_features = 1024});
      eval();
    }
    Tensor forward(const Tensor& x) const override { return fc(flatten(conv(quant(x)))); }
  };
  Wide prepared = prepare(Wide(), get_default_qconfig());
  const Tensor x = random_tensor({2, 64, 4, 4}, 1);
  prepared(x);
  const Wide int8 = convert(prepared);
  const TemporaryFolder folder;
  const fs::path file = folder / "model.safetensors";
  save_model(int8, file);
  Wide loaded;
  const std::size_t codes = std::size_t{1024} * 64 * 4 * 4 + std::size_t{1024} * 1024;
  reset_allocator_peak();
  const std::size_t before = allocator_stats().in_use;
  load_model(loaded, file);
  const std::size_t more = allocator_stats().peak_in_use - before;
  CAPTURE(more);
  CHECK(more >= codes);
  CHECK(more < codes + codes / 4);  // biases, scales
  CHECK(loaded(x).equal(int8(x)));
  // Two models of one file have nothing in common.
  Wide other;
  load_model(other, file);
  const QTensor weight = dynamic_cast<const nn::quantized::Linear&>(*other.fc.module()).weight();
  const auto& mine = dynamic_cast<const nn::quantized::Linear&>(*loaded.fc.module());
  CHECK(weight.storage() != mine.weight().storage());
  CHECK(weight.equal(mine.weight()));
}

TEST_CASE("load_model: with FileAccess::Map the model is the same while the file stays") {
  const SmallNetwork int8 = convert(calibrated_network());
  const TemporaryFolder folder;
  const fs::path file = folder / "model.safetensors";
  save_model(int8, file);
  SmallNetwork loaded;
  load_model(loaded, file, {}, {.access = FileAccess::Map});
  const Tensor x = small_input(9);
  CHECK(loaded(x).equal(int8(x)));
  // A save renames a new file over it: the mapped one stays.
  save_model(loaded, file);
  CHECK(loaded(x).equal(int8(x)));
}

TEST_CASE("read_text_file: a pipe will do and what cannot be read is named") {
  const TemporaryFolder folder;
  const fs::path pipe = folder / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const std::string text(300000, 'x');
  std::thread writer([&] { write_bytes(pipe, text); });
  CHECK(detail::read_text_file(pipe, "settings") == text);
  writer.join();
  const auto refused = [](const fs::path& path, const char* got) {
    CHECK_THROWS_WITH_AS(detail::read_text_file(path, "settings"), doctest::Contains(got),
                         FileError);
  };
  refused(folder / "none", "none: settings: expected a file that can be read, got No such file");
  refused(folder.path(), "got Is a directory");
}

TEST_CASE("read: a file that is cut off while it is read is an error that says so") {
  const TemporaryFolder folder;
  const fs::path path = folder / "a";
  write_bytes(path, std::string(100000, 'x'));
  const detail::OpenFile file(path, "read_x");
  fs::resize_file(path, 5000);
  std::string bytes(100000, '\0');
  CHECK_THROWS_WITH_AS(
      file.read(0, std::as_writable_bytes(std::span(bytes))),
      doctest::Contains("expected 100000 bytes as when it was opened, got 5000: it "
                        "was cut off while it was read"),
      FileError);
}

}  // namespace quanta::test
