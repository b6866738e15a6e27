#include "quanta/runtime/detail/packed_forms.h"

#include <doctest/doctest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "quanta/runtime/detail/hash_bytes.h"
#include "quanta/runtime/detail/warning_capture.h"
#include "support/tensors.h"
#include "support/threads.h"

namespace quanta::test {
namespace {

using detail::PackedForms;
using detail::SavedForms;

std::span<const std::byte> bytes_of(const Tensor& x) {
  return {static_cast<const std::byte*>(x.data_ptr()), x.nbytes()};
}

Tensor codes(std::int64_t count, std::int64_t first = 0) {
  const Tensor x = Tensor::zeros({count}, DType::Int8);
  for (std::int64_t i = 0; i < count; ++i) {
    x.mutable_data<std::int8_t>()[i] = static_cast<std::int8_t>(first + i * 7);
  }
  return x;
}

constexpr std::size_t kBytes = 192;
const std::string kLayout = "layout 1";

// What `weight` becomes in kLayout: its first code over and over.
PackedForms::Pack pack_first(const Tensor& weight, int& times) {
  return [&times, first = static_cast<const char*>(weight.data_ptr())[0]](std::byte* to) {
    ++times;
    std::memset(to, first, kBytes);
  };
}

/// Words that hold the form of `weight` at byte `begin`, and a list of it alone.
struct File {
  Tensor memory = Tensor::zeros({64}, DType::Int64);
  std::shared_ptr<SavedForms> forms = std::make_shared<SavedForms>(memory);

  std::byte* at(std::size_t begin) const {
    return reinterpret_cast<std::byte*>(memory.mutable_data<std::int64_t>()) + begin;
  }
  void put(const Tensor& weight, std::size_t begin = 0, std::size_t bytes = kBytes) const {
    int times = 0;
    pack_first(weight, times)(at(begin));
    const std::span<const std::byte> form = bytes_of(memory).subspan(begin, bytes);
    const std::uint64_t hash = detail::hash_codes(weight);
    forms->add(hash, {kLayout, form, detail::seal_form(hash, kLayout, form)});
  }
  std::shared_ptr<PackedForms> weight(const Tensor& x) const {
    const SavedForms::Scope scope(forms);
    return PackedForms::make(x);
  }
};

}  // namespace

TEST_CASE("hash_bytes: every byte counts and so do their number and the seed") {
  for (const std::int64_t count : {1, 15, 63, 64, 65, 200, 262144, 262145, 700001}) {
    CAPTURE(count);
    const Tensor x = codes(count);
    const std::uint64_t hash = detail::hash_bytes(bytes_of(x));
    CHECK(detail::hash_bytes(bytes_of(x), 1) != hash);
    CHECK(detail::hash_bytes(bytes_of(x).first(static_cast<std::size_t>(count - 1))) != hash);
    auto* bytes = x.mutable_data<std::int8_t>();
    for (std::int64_t i = 0; i < count; i += count / 97 + 1) {
      bytes[i] = static_cast<std::int8_t>(bytes[i] ^ 4);
      CHECK(detail::hash_bytes(bytes_of(x)) != hash);
      bytes[i] = static_cast<std::int8_t>(bytes[i] ^ 4);
    }
    CHECK(detail::hash_bytes(bytes_of(x)) == hash);
  }
  CHECK(detail::hash_bytes({}) != detail::hash_bytes({}, 1));
}

TEST_CASE("hash_bytes: zeros behind the end are not the end") {
  const std::array<std::byte, 64> zeros{};
  CHECK(detail::hash_bytes(std::span(zeros).first(10)) !=
        detail::hash_bytes(std::span(zeros).first(11)));
}

TEST_CASE("hash_bytes: files keep these numbers") {
  const Tensor x = codes(300000);
  CHECK(detail::hash_bytes(bytes_of(x)) == 0x1c06846d4418a0baU);
  CHECK(detail::hash_bytes(bytes_of(x).first(100), 5) == 0x805a002a46e89087U);
}

TEST_CASE("hash_bytes: the number of threads makes no difference") {
  const Tensor x = codes(1 << 21);
  std::vector<std::uint64_t> hashes;
  for (const int threads : {1, 2, 5}) {
    const Threads guard(threads);
    hashes.push_back(detail::hash_bytes(bytes_of(x)));
  }
  CHECK(hashes[0] == hashes[1]);
  CHECK(hashes[0] == hashes[2]);
}

TEST_CASE("PackedForms: a form is packed once") {
  const Tensor x = codes(40, 3);
  const std::shared_ptr<PackedForms> forms = PackedForms::make(x);
  int times = 0;
  const auto first = forms->get(kLayout, kBytes, pack_first(x, times));
  CHECK(forms->get(kLayout, kBytes, pack_first(x, times)) == first);
  CHECK(times == 1);
  CHECK(forms->get("layout 2", kBytes, pack_first(x, times)) != first);
  CHECK(times == 2);
  CHECK(forms->all().size() == 2);
  CHECK(PackedForms::of(x) == forms);
  CHECK(PackedForms::of(codes(40, 3)) == nullptr);
}

TEST_CASE("PackedForms: the forms of codes that were written to are nobody's") {
  const Tensor x = codes(40, 3);
  const std::shared_ptr<PackedForms> forms = PackedForms::make(x);
  int times = 0;
  forms->get(kLayout, kBytes, pack_first(x, times));
  x.fill_(1.0);
  CHECK(forms->all().empty());
}

TEST_CASE("PackedForms: the form of a file stands for packing") {
  const Tensor x = codes(40, 3);
  const File file;
  file.put(x, 64);
  int times = 0;
  const PackedForms::Counts before = PackedForms::counts();
  const auto form = file.weight(x)->get(kLayout, kBytes, pack_first(x, times));
  CHECK(times == 0);
  CHECK(form.get() == file.at(64));
  CHECK(PackedForms::counts().found == before.found + 1);
  CHECK(PackedForms::counts().packed == before.packed);
  CHECK(SavedForms::current() == nullptr);
}

TEST_CASE("PackedForms: a form of another layout or size or of other codes is not used") {
  const Tensor x = codes(40, 3);
  int times = 0;
  const File file;
  file.put(codes(40, 4));      // other codes
  file.put(codes(41, 3), 64);  // more codes
  file.weight(x)->get(kLayout, kBytes, pack_first(x, times));
  CHECK(times == 1);
  file.put(x, 128, 128);  // another size
  file.weight(x)->get(kLayout, kBytes, pack_first(x, times));
  CHECK(times == 2);
  file.put(x, 136);  // not at the beginning of a cache line
  file.weight(x)->get(kLayout, kBytes, pack_first(x, times));
  CHECK(times == 3);
  file.put(x, 128);
  file.weight(x)->get("layout 2", kBytes, pack_first(x, times));
  CHECK(times == 4);
  file.weight(x)->get(kLayout, kBytes, pack_first(x, times));
  CHECK(times == 4);
}

TEST_CASE("PackedForms: a damaged form is told and packed again") {
  const Tensor x = codes(40, 3);
  const File file;
  file.put(x);
  *file.at(kBytes - 1) ^= std::byte{1};
  int times = 0;
  const detail::WarningCapture warnings;
  const auto form = file.weight(x)->get(kLayout, kBytes, pack_first(x, times));
  CHECK(times == 1);
  CHECK(form.get()[kBytes - 1] == std::byte{3});
  REQUIRE(warnings.texts().size() == 1);
  CHECK(warnings.texts()[0].find("the file is damaged") != std::string::npos);
}

TEST_CASE("seal_form: the bytes of a form belong to its codes and its layout") {
  const Tensor x = codes(100);
  const std::uint64_t seal = detail::seal_form(1, kLayout, bytes_of(x));
  CHECK(detail::seal_form(2, kLayout, bytes_of(x)) != seal);
  CHECK(detail::seal_form(1, "layout 2", bytes_of(x)) != seal);
  CHECK(detail::seal_form(1, kLayout, bytes_of(codes(100, 1))) != seal);
}

}  // namespace quanta::test
