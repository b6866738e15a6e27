#include "quanta/runtime/detail/text_file.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/open_file.h"

namespace quanta::detail {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

}  // namespace

std::string read_text_file(const std::filesystem::path& path, std::string_view what) {
  const auto fail = [&](std::string_view got) {
    throw FileError(fmt::format("{:.300}: {}: expected a file that can be read, got {}",
                                path.string(), what, got));
  };
  const auto message = [] { return std::generic_category().message(errno); };
  const ReadDescriptor file(path);  // a pipe will do
  if (file.number() < 0) fail(message());
  std::string text;
  std::array<char, 1 << 16> part;
  for (;;) {
    const ssize_t count = ::read(file.number(), part.data(), part.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail(message());
    if (count == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(count));
    if (text.size() >= kMaxBytes) fail("one of 1 GiB or more");
  }
}

}  // namespace quanta::detail
