#include "quanta/runtime/atomic_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "file_test_util.h"
#include "quanta/runtime/error.h"
#include "support/files.h"

namespace quanta {
namespace {

using test::files_in;

namespace fs = std::filesystem;
using test::read_bytes;

void save(const fs::path& path, std::string_view text) {
  write_file_atomically(path, [&](const auto& sink) { sink(test::as_bytes(text)); });
}

}  // namespace

TEST_CASE("write_file_atomically: writes all bytes and leaves nothing beside the file") {
  const test::TemporaryFolder folder;
  std::string expected;
  write_file_atomically(folder / "a", [&](const auto& sink) {
    for (int i = 0; i < 3000; ++i) {
      // Below, at and above the size of the buffer.
      const std::string part(static_cast<std::size_t>(i % 97 == 0 ? 70000 : i % 113),
                             static_cast<char>('a' + i % 26));
      expected += part;
      sink(test::as_bytes(part));
    }
  });
  CHECK(read_bytes(folder / "a") == expected);
  CHECK(files_in(folder.path()) == 1);
  save(folder / "a", "");
  CHECK(read_bytes(folder / "a").empty());
}

TEST_CASE("write_file_atomically: the old file stays when the writer throws") {
  const test::TemporaryFolder folder;
  save(folder / "a", "old");
  CHECK_THROWS_AS(write_file_atomically(folder / "a",
                                        [](const auto& sink) {
                                          sink(test::as_bytes(std::string(100000, 'x')));
                                          throw std::runtime_error("stop");
                                        }),
                  std::runtime_error);
  CHECK(read_bytes(folder / "a") == "old");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("write_file_atomically: an open reader keeps the old contents") {
  const test::TemporaryFolder folder;
  save(folder / "a", "old");
  std::ifstream reader(folder / "a");
  save(folder / "a", "new");
  std::string contents;
  reader >> contents;
  CHECK(contents == "old");
  CHECK(read_bytes(folder / "a") == "new");
}

TEST_CASE("write_file_atomically: permissions of the old file are kept") {
  const test::TemporaryFolder folder;
  save(folder / "a", "old");
  fs::permissions(folder / "a", fs::perms::owner_read | fs::perms::owner_write);
  save(folder / "a", "new");
  CHECK(fs::status(folder / "a").permissions() == (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("write_file_atomically: a link stays a link") {
  const test::TemporaryFolder folder;
  save(folder / "a", "old");
  fs::create_symlink(folder / "a", folder / "link");
  save(folder / "link", "new");
  CHECK(fs::is_symlink(folder / "link"));
  CHECK(read_bytes(folder / "a") == "new");
}

TEST_CASE("write_file_atomically: what cannot be replaced is named in the error") {
  const test::TemporaryFolder folder;
  CHECK_THROWS_WITH_AS(save(folder.path(), "x"), doctest::Contains("got a folder"), FileError);
  CHECK_THROWS_WITH_AS(save("/dev/null", "x"), doctest::Contains("got a special file"), FileError);
  CHECK_THROWS_WITH_AS(save(folder / "missing/a", "x"), doctest::Contains("No such file"),
                       FileError);
  CHECK_THROWS_AS(save("", "x"), FileError);
  CHECK(fs::is_character_file("/dev/null"));
}

}  // namespace quanta
