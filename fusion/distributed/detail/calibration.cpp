#include "quanta/fusion/distributed/detail/calibration.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "quanta/fusion/distributed/detail/same_on_all.h"
#include "quanta/fusion/distributed/sync_observers.h"
#include "quanta/observers/settings.h"
#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/share.h"

namespace quanta::distributed::detail {
namespace {

constexpr std::string_view kOp = "calibrate";
constexpr std::int64_t kLongestRound = 64;

// How long rounds are. What a round costs besides its batches is little; batches that run again are
// much. Where a fifth of the rounds has some, the length stays about as it is.
class RoundLength {
 public:
  RoundLength(std::int64_t fixed, bool is_any_framed)
      : is_fixed_(fixed > 0),
        length_(is_fixed_       ? fixed
                : is_any_framed ? 1
                                : kLongestRound) {}
  std::int64_t get() const noexcept { return length_; }
  void adapt(bool has_moved) {
    if (is_fixed_) return;
    constexpr int kRoundsToGrow = 4;
    if (has_moved) {
      length_ = std::max<std::int64_t>(length_ / 2, 1);
      rounds_ = 0;
    } else if (++rounds_ == kRoundsToGrow) {
      length_ = std::min(2 * length_, kLongestRound);
      rounds_ = 0;
    }
  }

 private:
  bool is_fixed_;
  std::int64_t length_;
  int rounds_ = 0;  // in which nothing ran again, since the length has changed
};

std::string prefix_of(std::size_t member) { return fmt::format("{}.", member); }

std::vector<std::byte> bytes_of(const Collector& collector) {
  StateDict state;
  collector.save_gathered(state, "");
  return to_bytes(state);
}

// Numbers one after the other in a message.
class Writer {
 public:
  void count(std::size_t value) {
    const auto wide = static_cast<std::uint64_t>(value);
    add(&wide, sizeof(wide));
  }
  void floats(std::span<const float> values) { add(values.data(), values.size_bytes()); }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void add(const void* from, std::size_t size) {
    const auto* begin = static_cast<const std::byte*>(from);
    bytes_.insert(bytes_.end(), begin, begin + size);
  }
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  std::size_t count() {
    std::uint64_t value = 0;
    take(&value, sizeof(value));
    return static_cast<std::size_t>(value);
  }
  std::vector<float> floats(std::size_t size) {
    std::vector<float> values(size);
    take(values.data(), size * sizeof(float));
    return values;
  }

 private:
  void take(void* to, std::size_t size) {
    if (size > 0) std::memcpy(to, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
  }
  std::span<const std::byte> bytes_;
};

}  // namespace

// Members ----------------------------------------------------------------------------------------

void Calibration::Member::hear(const Digest& digest) {
  if (is_framed) ranges.push_back(digest.range);
  if (!digests.empty() && collector->join(digests.back(), digest)) return;
  digests.push_back(digest);
}

void Calibration::Member::forget() {
  digests.clear();
  ranges.clear();
}

Calibration::Calibration(const Statistics& collectors, const Communicator& comm,
                         std::string_view task)
    : comm_(comm) {
  std::string others;
  for (const auto& [name, collector] : collectors) {
    QUANTA_CHECK(collector != nullptr, "{}: {}: expected a collector, got null", kOp, name);
    QUANTA_CHECK(
        !waits_for_all_ranks(*collector),
        "{}: {}: expected an observer on its own (unsync_observers), got a synchronised one, "
        "which waits for ranks that have another number of batches",
        kOp, name);
    const DigestKind kind = collector->digests();
    if (kind == DigestKind::None) {
      others += fmt::format("{}{} ({})", others.empty() ? "" : ", ", name, collector->name());
    }
    members_.push_back({name, collector, kind == DigestKind::Framed});
  }
  QUANTA_SUPPORTED(others.empty(),
                   "{}: expected collectors whose update has two halves, which ranks can share "
                   "(Collector::digests), got {}",
                   kOp, others);
  check_alike(task);
  at_first_ = save();
  if (comm_.size() == 1) return;
  std::vector<std::byte> first = to_bytes(at_first_);
  broadcast_bytes(comm_, first, 0, "calibrate: begin");
  load(from_bytes(first));
}

Calibration::~Calibration() { listen(false); }

void Calibration::check_alike(std::string_view task) const {
  std::string lines = fmt::format("{}\n", task);
  for (const Member& member : members_) {
    lines += fmt::format("{}: {}\n", member.name,
                         call_text(member.collector->name(), member.collector->settings()));
  }
  require_same_lines(comm_, "calibrate: collectors", lines);
}

StateDict Calibration::save() const {
  StateDict state;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    members_[i].collector->save_gathered(state, prefix_of(i));
  }
  return state;
}

void Calibration::load(const StateDict& state) {
  for (std::size_t i = 0; i < members_.size(); ++i) {
    members_[i].collector->load_gathered(state, prefix_of(i));
  }
}

void Calibration::listen(bool on) {
  for (Member& member : members_) {
    if (on) {
      member.collector->set_listener([&member](const Digest& digest) {
        if (member.is_heard) member.hear(digest);
      });
    } else {
      member.collector->set_listener({});
    }
  }
}

// Rounds -----------------------------------------------------------------------------------------

void Calibration::run(std::int64_t count, std::int64_t combine_every, const Run& run_batches) {
  try {
    if (comm_.size() == 1) return run_batches(0, count, false);
    listen(true);
    RoundLength length(combine_every, is_any_framed());
    for (std::int64_t begin = 0; begin < count;) {
      const std::int64_t left = count - begin;
      const std::int64_t size =
          length.get() < left / comm_.size() ? length.get() * comm_.size() : left;
      const bool has_moved =
          run_round({begin + quanta::detail::share_begin(size, comm_.rank(), comm_.size()),
                     begin + quanta::detail::share_begin(size, comm_.rank() + 1, comm_.size())},
                    run_batches);
      begin += size;
      length.adapt(has_moved);
    }
    listen(false);
  } catch (...) {
    listen(false);
    load(at_first_);
    throw;
  }
}

bool Calibration::is_any_framed() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.is_framed; });
}

bool Calibration::run_round(Batches mine, const Run& run_batches) {
  const StateDict before = save();
  for (Member& member : members_) {
    member.forget();
    member.is_heard = true;
  }
  if (mine.begin < mine.end) run_batches(mine.begin, mine.end, false);
  const bool has_moved = move_frames(before);
  if (has_moved && mine.begin < mine.end) run_batches(mine.begin, mine.end, true);
  combine(before);
  if (!is_any_framed()) return false;
  // The last rank's frames are moved by the batches of all others.
  std::byte any_has_moved{has_moved};
  comm_.broadcast(std::span(&any_has_moved, 1), comm_.size() - 1, "calibrate: round");
  return any_has_moved != std::byte{0};
}

std::vector<std::byte> Calibration::ranges_of_all() const {
  Writer writer;
  for (const Member& member : members_) {
    if (!member.is_framed) continue;
    writer.count(member.ranges.size());
    for (const ValueRange& range : member.ranges) {
      writer.count(range.min.size());
      writer.floats(range.min);
      writer.floats(range.max);
    }
  }
  return writer.take();
}

void Calibration::move_frames_by(std::span<const std::byte> ranges) {
  Reader reader(ranges);
  for (const Member& member : members_) {
    if (!member.is_framed) continue;
    for (std::size_t left = reader.count(); left > 0; --left) {
      const std::size_t entries = reader.count();
      ValueRange range;
      range.min = reader.floats(entries);
      range.max = reader.floats(entries);
      member.collector->move_frame(range);
    }
  }
}

bool Calibration::move_frames(const StateDict& before) {
  if (!is_any_framed()) return false;
  const std::vector<std::vector<std::byte>> all =
      comm_.all_gather(ranges_of_all(), "calibrate: ranges");
  load(before);
  std::vector<std::vector<std::byte>> unmoved;
  for (const Member& member : members_) {
    unmoved.push_back(member.is_framed ? bytes_of(*member.collector) : std::vector<std::byte>{});
  }
  for (int rank = 0; rank < comm_.rank(); ++rank) {
    move_frames_by(all[static_cast<std::size_t>(rank)]);
  }
  bool any_moved = false;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    // No counts have come: what has changed is the frame.
    member.is_heard = member.is_framed && bytes_of(*member.collector) != unmoved[i];
    if (member.is_heard) member.forget();
    any_moved = any_moved || member.is_heard;
  }
  return any_moved;
}

void Calibration::combine(const StateDict& before) {
  std::vector<std::byte> so_far;
  for (int rank = 0; rank < comm_.size(); ++rank) {
    if (rank == comm_.rank()) {
      load(rank == 0 ? before : from_bytes(so_far));
      for (Member& member : members_) {
        for (const Digest& digest : member.digests) {
          if (member.collector->absorb(digest)) continue;
          throw InternalError(fmt::format(
              "{}: {}: a batch was counted in bins that the collector does not have then", kOp,
              member.name));
        }
        member.forget();
      }
      so_far = to_bytes(save());
    }
    broadcast_bytes(comm_, so_far, rank, "calibrate: combine");
  }
  load(from_bytes(so_far));
}

}  // namespace quanta::distributed::detail
