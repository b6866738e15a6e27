#include "plan_support.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

namespace quanta::test {

using replay::detail::Buffer;
using replay::detail::BufferKind;
using replay::detail::Fork;
using replay::detail::Program;
using replay::detail::Value;

bool conflict(const Program& program, std::size_t a, std::size_t b) {
  const auto uses = [&](std::size_t step, std::size_t buffer, bool writes_only) {
    const auto is_it = [&](const Value& value) { return value.buffer == buffer; };
    return std::ranges::any_of(program.steps[step].outputs, is_it) ||
           (!writes_only && std::ranges::any_of(program.steps[step].inputs, is_it));
  };
  for (std::size_t buffer = 0; buffer < program.buffers.size(); ++buffer) {
    if (program.buffers[buffer].kind == BufferKind::Constant) continue;
    if ((uses(a, buffer, true) && uses(b, buffer, false)) ||
        (uses(a, buffer, false) && uses(b, buffer, true))) {
      return true;
    }
  }
  return false;
}

void check_forks(const Program& program, const std::vector<Fork>& forks) {
  std::size_t last = 0;
  for (const Fork& fork : forks) {
    CHECK(fork.begin >= last);
    last = fork.end;
    std::set<std::size_t> seen;
    for (std::size_t a = 0; a < fork.lanes.size(); ++a) {
      CHECK(std::ranges::is_sorted(fork.lanes[a]));
      for (const std::size_t step : fork.lanes[a]) {
        CHECK(step >= fork.begin);
        CHECK(step < fork.end);
        CHECK(seen.insert(step).second);
      }
      for (std::size_t b = 0; b < a; ++b) {
        for (const std::size_t one : fork.lanes[a]) {
          for (const std::size_t other : fork.lanes[b]) CHECK(!conflict(program, one, other));
        }
      }
    }
    CHECK(seen.size() == fork.end - fork.begin);
  }
  CHECK(last <= program.steps.size());
}

void check_memory(const Program& program, const std::vector<Fork>& forks) {
  // Each step's place in time: of what runs side by side, the whole fork.
  struct Span {
    std::size_t begin, end, lane;
  };
  std::vector<Span> spans;
  for (std::size_t i = 0; i < program.steps.size(); ++i) spans.push_back({i, i, 0});
  std::size_t lanes = 0;
  for (const Fork& fork : forks) {
    for (const auto& lane : fork.lanes) {
      ++lanes;
      for (const std::size_t step : lane) spans[step] = {fork.begin, fork.end - 1, lanes};
    }
  }
  struct Life {
    std::set<std::size_t> steps, lanes;
  };
  std::vector<Life> lives(program.buffers.size());
  for (std::size_t i = 0; i < program.steps.size(); ++i) {
    for (const auto* values : {&program.steps[i].inputs, &program.steps[i].outputs}) {
      for (const Value& value : *values) {
        lives[value.buffer].steps.insert(i);
        lives[value.buffer].lanes.insert(spans[i].lane);
      }
    }
  }
  const auto from = [&](const Life& life) { return spans[*life.steps.begin()].begin; };
  const auto to = [&](const Life& life) { return spans[*life.steps.rbegin()].end; };
  for (std::size_t a = 0; a < program.buffers.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const Buffer& left = program.buffers[a];
      const Buffer& right = program.buffers[b];
      const Life& one = lives[a];
      const Life& other = lives[b];
      if (left.kind != BufferKind::Arena || right.kind != BufferKind::Arena) continue;
      if (one.steps.empty() || other.steps.empty()) continue;
      const bool same_lane =
          one.lanes.size() == 1 && one.lanes == other.lanes && *one.lanes.begin() != 0;
      const bool meet = same_lane ? *one.steps.begin() <= *other.steps.rbegin() &&
                                        *other.steps.begin() <= *one.steps.rbegin()
                                  : from(one) <= to(other) && from(other) <= to(one);
      if (!meet) continue;
      const bool apart =
          left.offset + left.bytes <= right.offset || right.offset + right.bytes <= left.offset;
      CHECK(apart);
    }
  }
}

}  // namespace quanta::test
