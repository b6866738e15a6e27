#include "quanta/runtime/detail/buffer_places.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "quanta/runtime/detail/ceil_div.h"

namespace quanta::replay::detail {
namespace {

struct Lifetime {
  std::size_t first = std::numeric_limits<std::size_t>::max();
  std::size_t last = 0;
  void include(std::size_t step) {
    first = std::min(first, step);
    last = std::max(last, step);
  }
  bool meets(const Lifetime& other) const { return first <= other.last && other.first <= last; }
};

std::vector<Lifetime> lifetimes(const Program& program) {
  std::vector<Lifetime> result(program.buffers.size());
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    for (const Value& value : program.steps[i].inputs) result[value.buffer].include(i);
    for (const Value& value : program.steps[i].outputs) result[value.buffer].include(i);
  }
  return result;
}

/// When buffers are needed where steps run side by side: what several lanes use, or steps outside too,
/// for all of the fork.
class LaneLives {
 public:
  LaneLives(const Program& program, std::span<const Fork> forks)
      : lives_(lifetimes(program)), whole_(lives_), lanes_(lives_.size()) {
    constexpr std::size_t kNone = 0;
    std::vector<std::size_t> lane_of(program.steps.size(), kNone);
    std::size_t lanes = kNone;
    for (const Fork& fork : forks) {
      for (const std::vector<std::size_t>& lane : fork.lanes) {
        ++lanes;
        for (const std::size_t step : lane) lane_of[step] = lanes;
      }
    }
    for (std::size_t b = 0; b < lives_.size(); ++b) {
      if (lives_[b].first > lives_[b].last) continue;
      for (const Fork& fork : forks) {
        if (!lives_[b].meets({fork.begin, fork.end - 1})) continue;
        whole_[b].include(fork.begin);
        whole_[b].include(fork.end - 1);
      }
    }
    const auto note = [&](std::size_t step, const Value& value) {
      std::optional<std::size_t>& lane = lanes_[value.buffer];
      if (!lane) lane = lane_of[step];
      if (*lane != lane_of[step]) lane = kNone;
    };
    for (std::size_t i = 0; i < program.steps.size(); ++i) {
      for (const Value& value : program.steps[i].inputs) note(i, value);
      for (const Value& value : program.steps[i].outputs) note(i, value);
    }
  }

  bool is_used(std::size_t buffer) const { return lives_[buffer].first <= lives_[buffer].last; }
  bool meet(std::size_t a, std::size_t b) const {
    const bool same_lane = lanes_[a].value_or(0) != 0 && lanes_[a] == lanes_[b];
    return same_lane ? lives_[a].meets(lives_[b]) : whole_[a].meets(whole_[b]);
  }

 private:
  std::vector<Lifetime> lives_;
  std::vector<Lifetime> whole_;                    // with all of the forks that they reach into
  std::vector<std::optional<std::size_t>> lanes_;  // the only one that uses it; 0: there is none
};

}  // namespace

void reuse_inputs(Program& program) {
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    const PlannedStep& step = program.steps[i];
    if (!step.in_place) continue;
    const Value in = step.inputs[0];
    const Value out = step.outputs[0];
    const Buffer& from = program.buffers[in.buffer];
    const Buffer& to = program.buffers[out.buffer];
    const bool both_in_arena = from.kind == BufferKind::Arena && to.kind == BufferKind::Arena;
    if (!both_in_arena || in.buffer == out.buffer || !program.is_whole(in) ||
        !program.is_whole(out) || from.bytes != to.bytes || in.strides != out.strides) {
      continue;
    }
    const std::vector<Lifetime> lives = lifetimes(program);
    if (lives[in.buffer].last == i && lives[out.buffer].first == i) {
      replace_buffer(program, out.buffer, in.buffer);
    }
  }
}

std::size_t place_buffers(Program& program, std::span<const Fork> forks) {
  constexpr std::size_t kAlignment = 64;
  // Neighbours of sizes that are multiples of a page would lie so that a load seems to follow the
  // store to another buffer: processors compare the lowest 12 bits of addresses first.
  constexpr std::size_t kLarge = 16384;
  constexpr std::size_t kStagger = 2048 + kAlignment;
  const LaneLives lives(program, forks);
  std::vector<std::size_t> order;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (program.buffers[b].kind == BufferKind::Arena && lives.is_used(b)) order.push_back(b);
  }
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return program.buffers[a].bytes > program.buffers[b].bytes;
  });
  const auto room = [&](std::size_t b) {
    const std::size_t bytes = program.buffers[b].bytes;
    return round_up(bytes, kAlignment) + (bytes >= kLarge ? kStagger : kAlignment);
  };
  std::size_t total = 0;
  std::vector<std::size_t> placed;
  for (const std::size_t b : order) {
    // The lowest place that is free all the time that this buffer lives.
    std::vector<std::pair<std::size_t, std::size_t>> taken;
    for (const std::size_t other : placed) {
      if (lives.meet(b, other)) {
        taken.emplace_back(program.buffers[other].offset,
                           program.buffers[other].offset + room(other));
      }
    }
    std::sort(taken.begin(), taken.end());
    std::size_t offset = 0;
    for (const auto& [begin, end] : taken) {
      if (offset + room(b) <= begin) break;
      offset = std::max(offset, end);
    }
    program.buffers[b].offset = offset;
    total = std::max(total, offset + room(b));
    placed.push_back(b);
  }
  return total;
}

}  // namespace quanta::replay::detail
