#include "quanta/runtime/detail/file_memory.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string_view>
#include <thread>
#include <vector>

#include "file_test_util.h"
#include "quanta/runtime/detail/file_bytes.h"
#include "quanta/runtime/safetensors.h"
#include "support/tensors.h"

namespace quanta::test {
namespace {

using detail::release_file_memory;
using detail::unshared;

struct SavedTensor {
  TemporaryFolder folder;
  std::filesystem::path path = folder.path() / "x.safetensors";
  Tensor values;

  explicit SavedTensor(std::int64_t count) {
    values = random_tensor({count}, 1);
    StateDict state;
    state.set("x", values);
    write_safetensors(path, state);
  }
  Tensor read() const { return *read_safetensors(path, FileAccess::Map).find("x"); }
};

bool is_mapped(const Tensor& x) {
  return detail::FileBytes::holding({static_cast<const std::byte*>(x.data_ptr()), x.nbytes()}) !=
         nullptr;
}

}  // namespace

TEST_CASE("unshared: a tensor of a file is mapped again and outlives the file's first mapping") {
  const SavedTensor saved(100000);
  Tensor x = saved.read();
  const Tensor own = unshared(x);
  CHECK(is_mapped(own));
  CHECK(own.data_ptr() != x.data_ptr());
  x.fill_(0.0);
  x = Tensor();
  CHECK(own.equal(saved.values));
  release_file_memory(own);
  CHECK(own.equal(saved.values));
}

TEST_CASE("unshared: what is handed over is taken once and not copied") {
  StateDict state;
  state.set("x", random_tensor({100}, 1).clone());
  state.set("y", random_tensor({100}, 2).clone());
  const Tensor both = random_tensor({10}, 3).clone();
  state.set("both", both);
  state.set("both again", both.view({2, 5}));
  state.set("part", random_tensor({20}, 4).clone().slice(0, 0, 10));
  state.set("turned", random_tensor({3, 4}, 5).clone().t());
  const auto is_taken = [&](std::string_view name) {
    const Tensor& x = state.at(name);
    const Tensor own = unshared(x);
    CHECK(own.equal(x));
    CHECK(own.is_contiguous());
    return own.storage() == x.storage();
  };
  CHECK_FALSE(is_taken("x"));
  {
    const detail::Handover handover(state);
    CHECK(is_taken("x"));
    CHECK_FALSE(is_taken("x"));
    for (const char* name : {"both", "both again", "part", "turned"}) {
      CAPTURE(name);
      CHECK_FALSE(is_taken(name));
    }
    const Tensor other = random_tensor({100}, 6).clone();
    CHECK(unshared(other).storage() != other.storage());
    bool elsewhere = true;
    std::thread([&] { elsewhere = is_taken("y"); }).join();
    CHECK_FALSE(elsewhere);
    state.at("y").fill_(1.0);  // somebody has it in use
    CHECK_FALSE(is_taken("y"));
  }
  CHECK_FALSE(is_taken("y"));
}

TEST_CASE("unshared: a second holder gets a copy until the first lets go") {
  const SavedTensor saved(100000);
  const Tensor x = saved.read();
  {
    const Tensor first = unshared(x);
    for (const Tensor& second :
         {unshared(x), unshared(x.slice(0, 5, 90)), unshared(x.slice(0, 99990, 100000))}) {
      CHECK_FALSE(is_mapped(second));
    }
    first.fill_(1.0);
    CHECK(x.equal(saved.values));
  }
  CHECK(is_mapped(unshared(x)));
  CHECK(unshared(unshared(x)).equal(saved.values));
}

TEST_CASE("unshared: changed tensors and those of other memory are copied") {
  const SavedTensor saved(5000);
  const Tensor x = saved.read();
  x.fill_(3.0);
  const Tensor own = unshared(x);
  CHECK_FALSE(is_mapped(own));
  CHECK(own.equal(x));
  CHECK_FALSE(is_mapped(unshared(saved.values)));
  CHECK(unshared(saved.values.view({50, 100}).t()).equal(saved.values.view({50, 100}).t()));
}

TEST_CASE("release_file_memory: what was written to stays") {
  const SavedTensor saved(100000);
  const Tensor own = unshared(saved.read());
  own.fill_(2.0);
  release_file_memory(own);
  CHECK(own.equal(Tensor::full({100000}, 2.0)));
  release_file_memory(saved.values);
  CHECK(saved.read().equal(saved.values));
}

TEST_CASE("release_file_memory: readers on other threads see the same values") {
  const SavedTensor saved(300000);
  const Tensor own = unshared(saved.read());
  std::vector<std::thread> readers;
  std::vector<char> equal(3, 0);
  for (char& result : equal) {
    readers.emplace_back([&] {
      bool all = true;
      for (int i = 0; i < 20; ++i) all = all && own.equal(saved.values);
      result = all ? 1 : 0;
    });
  }
  for (int i = 0; i < 200; ++i) release_file_memory(own);
  for (std::thread& reader : readers) reader.join();
  for (const char result : equal) CHECK(result == 1);
}

}  // namespace quanta::test
