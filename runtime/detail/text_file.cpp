#include "quanta/runtime/detail/text_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "quanta/runtime/check.h"

namespace quanta::detail {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

class Descriptor {
 public:
  explicit Descriptor(const std::filesystem::path& path) {
    do {
      number_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    } while (number_ < 0 && errno == EINTR);
  }
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const noexcept { return number_; }

 private:
  int number_ = -1;
};

}  // namespace

std::string read_text_file(const std::filesystem::path& path, std::string_view what) {
  const auto fail = [&](std::string_view got) {
    throw FileError(fmt::format("{:.300}: {}: expected a file that can be read, got {}",
                                path.string(), what, got));
  };
  const auto message = [] { return std::generic_category().message(errno); };
  const Descriptor file(path);
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
