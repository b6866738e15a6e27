#include "quanta/runtime/atomic_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

#include "file_test_util.h"
#include "quanta/runtime/detail/temporary_file.h"
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

TEST_CASE("require_writable: says before the work what a write would say after it") {
  const test::TemporaryFolder folder;
  save(folder / "a", "old");
  CHECK_NOTHROW(require_writable(folder / "a"));
  CHECK_NOTHROW(require_writable(folder / "new"));
  CHECK(read_bytes(folder / "a") == "old");
  CHECK(files_in(folder.path()) == 1);
  for (const fs::path& wrong : {folder.path(), fs::path("/dev/null"), folder / "missing/a",
                                folder / "a/b", fs::path("/proc/a"), fs::path()}) {
    std::string said;
    try {
      save(wrong, "x");
    } catch (const FileError& error) {
      said = error.what();
    }
    CHECK_THROWS_WITH_AS(require_writable(wrong), said.c_str(), FileError);
  }
}

// The permissions of the open file that has no name in the folder, or one that is not `known`.
mode_t mode_of_temporary(const fs::path& folder, const fs::path& known) {
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string place = fs::read_symlink(entry.path(), ignored).string();
    struct stat info {};
    if (place.starts_with(folder.string() + "/") && place != known.string() &&
        ::stat(entry.path().c_str(), &info) == 0 && S_ISREG(info.st_mode)) {
      return info.st_mode & 07777;
    }
  }
  return 0;
}

TEST_CASE("write_file_atomically: nobody else reads a private file while it is written") {
  const test::TemporaryFolder folder;
  const fs::path file = folder / "a";
  save(file, "old");
  fs::permissions(file, fs::perms::owner_all | fs::perms::others_read);
  const mode_t mask = ::umask(022);
  mode_t replacing = 0;
  mode_t fresh = 0;
  write_file_atomically(file, [&](const auto& sink) {
    sink(test::as_bytes(std::string(100000, 'x')));
    replacing = mode_of_temporary(folder.path(), file);
  });
  write_file_atomically(folder / "b", [&](const auto& sink) {
    sink(test::as_bytes("x"));
    fresh = mode_of_temporary(folder.path(), folder / "b");
  });
  ::umask(mask);
  CHECK(replacing == 0600);
  CHECK(fresh == 0644);
  CHECK(fs::status(file).permissions() == (fs::perms::owner_all | fs::perms::others_read));
}

TEST_CASE("write_file_atomically: owner and group and setuid stay when root saves") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: not root");
    return;
  }
  const test::TemporaryFolder folder;
  const fs::path file = folder / "a";
  save(file, "old");
  REQUIRE(::chown(file.c_str(), 1234, 2345) == 0);
  REQUIRE(::chmod(file.c_str(), 06750) == 0);
  save(file, "new");
  struct stat info {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  CHECK(info.st_uid == 1234);
  CHECK(info.st_gid == 2345);
  CHECK((info.st_mode & 07777) == 06750);
  CHECK(read_bytes(file) == "new");
}

TEST_CASE("write_file_atomically: who may not keep the group keeps its rights from others") {
  if (::geteuid() != 0) {
    MESSAGE("skipped: not root");
    return;
  }
  const test::TemporaryFolder folder;
  const fs::path file = folder / "a";
  save(file, "old");
  REQUIRE(::chmod(folder.path().c_str(), 0777) == 0);
  REQUIRE(::chown(file.c_str(), 1234, 2345) == 0);
  REQUIRE(::chmod(file.c_str(), 06664) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    bool saved = ::setgroups(0, nullptr) == 0 && ::setgid(3000) == 0 && ::setuid(3000) == 0;
    try {
      if (saved) save(file, "new");
    } catch (...) {
      saved = false;
    }
    ::_exit(saved ? 0 : 1);
  }
  int status = 1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  struct stat info {};
  REQUIRE(::stat(file.c_str(), &info) == 0);
  CHECK(info.st_uid == 3000);
  CHECK(info.st_gid == 3000);
  CHECK((info.st_mode & 07777) == 0644);
}

TEST_CASE("write_file_atomically: what killed processes left goes with the next save") {
  const test::TemporaryFolder folder;
  for (int i = 0; i < 200; ++i) {
    test::write_bytes(folder / fmt::format("{}{:08x}", detail::temporary_name_of_kernel(), i),
                      "left");
  }
  test::write_bytes(folder / ".quanta-0123456789abcde", "too short a name");
  test::write_bytes(folder / "notes.tmp", "not ours");
  fs::create_symlink(folder / "notes.tmp", folder / ".quanta-00000000000000aa0");
  {
    // One that is being written.
    detail::TemporaryFile other(folder / "b", nullptr, detail::TemporaryFile::Naming::Early);
    other.write(test::as_bytes("b"));
    CHECK(files_in(folder.path()) == 204);
    save(folder / "a", "new");
    CHECK(files_in(folder.path()) == 5);
    other.commit();
  }
  CHECK(read_bytes(folder / "a") == "new");
  CHECK(read_bytes(folder / "b") == "b");
  CHECK(read_bytes(folder / "notes.tmp") == "not ours");
  CHECK(files_in(folder.path()) == 5);
}

TEST_CASE("write_file_atomically: what another machine writes stays for a day") {
  const test::TemporaryFolder folder;
  // Another kernel's number.
  const char digit = detail::temporary_name_of_kernel().back() == '0' ? '1' : '0';
  const auto name = [&](std::string_view rest) {
    std::string text = detail::temporary_name_of_kernel();
    text.back() = digit;
    return folder / (text + std::string(rest));
  };
  test::write_bytes(name("00000001"), "may be written at this moment");
  test::write_bytes(name("00000002"), "left");
  fs::last_write_time(name("00000002"), fs::file_time_type::clock::now() - std::chrono::hours(25));
  save(folder / "a", "new");
  CHECK(fs::exists(name("00000001")));
  CHECK_FALSE(fs::exists(name("00000002")));
}

TEST_CASE("write_file_atomically: a save that is killed leaves a whole file") {
  const test::TemporaryFolder folder;
  const fs::path file = folder / "a";
  const std::string versions[2] = {std::string(300000, 'a'), std::string(200000, 'b')};
  save(file, versions[0]);
  for (int round = 0; round < 30; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      for (int i = 1;; ++i) {
        const detail::FileOwner owner{0644, ::geteuid(), ::getegid()};
        detail::remove_left_files(folder.path());
        detail::TemporaryFile next(file, &owner,
                                   round % 2 == 0 ? detail::TemporaryFile::Naming::Early
                                                  : detail::TemporaryFile::Naming::Late);
        next.write(test::as_bytes(versions[i % 2]));
        next.commit();
      }
    }
    ::usleep(static_cast<useconds_t>(500 + 331 * round % 3000));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    const std::string now = read_bytes(file);
    CHECK((now == versions[0] || now == versions[1]));
    CHECK(files_in(folder.path()) <= 2);
    save(file, versions[0]);
    CHECK(read_bytes(file) == versions[0]);
    CHECK(files_in(folder.path()) == 1);
  }
}

TEST_CASE("write_file_atomically: names may be as long as the file system takes them") {
  const test::TemporaryFolder folder;
  const fs::path file = folder / std::string(255, 'n');
  save(file, "old");
  save(file, "new");
  CHECK(read_bytes(file) == "new");
  CHECK(files_in(folder.path()) == 1);
}

}  // namespace quanta
