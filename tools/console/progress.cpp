#include "console/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace quanta::console {
namespace {
using Clock = std::chrono::steady_clock;
constexpr int kWidth = 24;
}  // namespace

ProgressBar::ProgressBar(std::string label, std::int64_t total)
    : label_(std::move(label)),
      total_(std::max<std::int64_t>(total, 1)),
      terminal_(isatty(STDERR_FILENO) != 0),
      start_(Clock::now()),
      drawn_(start_) {
  if (terminal_) draw(false);
}

ProgressBar::~ProgressBar() { draw(true); }

void ProgressBar::advance(std::int64_t amount, std::string note) {
  note_ = std::move(note);
  done_ = std::min(done_ + amount, total_);
  if (!terminal_ || Clock::now() - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = Clock::now();
  draw(false);
}

void ProgressBar::draw(bool last) {
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  const int filled = static_cast<int>(done_ * kWidth / total_);
  const std::string bar = std::string(static_cast<std::size_t>(filled), '#') +
                          std::string(static_cast<std::size_t>(kWidth - filled), '-');
  const double left =
      done_ == 0 ? 0.0 : elapsed * static_cast<double>(total_ - done_) / static_cast<double>(done_);
  std::fprintf(stderr, "%s%-28s [%s] %lld/%lld  %s%s%.1f s %s%s", terminal_ ? "\r" : "",
               label_.c_str(), bar.c_str(), static_cast<long long>(done_),
               static_cast<long long>(total_), note_.c_str(), note_.empty() ? "" : "  ",
               last ? elapsed : left, last ? "    " : "left", last ? "\n" : "");
  std::fflush(stderr);
}

}  // namespace quanta::console
