#include "quanta/fusion/distributed/detail/rank_group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <limits>
#include <utility>

#include "quanta/runtime/check.h"
#include "quanta/runtime/detail/hash_bytes.h"
#include "quanta/runtime/detail/share.h"

namespace quanta::distributed::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Below, the root sends everything to everybody.
constexpr std::size_t kSmallBroadcast = std::size_t{1} << 16U;

// Piece `i` of those that `pieces` share, in whole units.
template <typename Byte>
std::span<Byte> piece_of(std::span<Byte> bytes, std::size_t unit, int i, int pieces) {
  const auto begin_of = [&](int piece) {
    return unit * static_cast<std::size_t>(quanta::detail::share_begin(
                      static_cast<std::int64_t>(bytes.size() / unit), piece, pieces));
  };
  return bytes.subspan(begin_of(i), begin_of(i + 1) - begin_of(i));
}

std::string_view name_of(JobKind kind) {
  switch (kind) {
    case JobKind::Barrier:
      return "barrier";
    case JobKind::SumFloat:
    case JobKind::SumDouble:
    case JobKind::SumInt64:
      return "sum";
    case JobKind::MinFloat:
      return "min";
    case JobKind::MaxFloat:
      return "max";
    case JobKind::Broadcast:
      return "broadcast";
    case JobKind::AllGather:
      return "all_gather";
    case JobKind::Gather:
      return "gather";
  }
  return "";
}

std::uint64_t call_of(JobKind kind, std::string_view place, int root) {
  const std::string text = fmt::format("{} {} {}", static_cast<int>(kind), root, place);
  return quanta::detail::hash_bytes(std::as_bytes(std::span(text)));
}

std::size_t size_of(const Job::Part& part) { return part.in_out.size(); }

}  // namespace

RankGroup::RankGroup(Processes& processes, int total)
    : processes_(processes),
      total_(total),
      calls_(static_cast<std::size_t>(count())),
      seconds_waited_(static_cast<std::size_t>(count())) {}

int RankGroup::begin_of(int process) const noexcept {
  return static_cast<int>(quanta::detail::share_begin(total_, process, processes_.size()));
}

int RankGroup::process_of(int rank) const noexcept {
  int process = 0;
  while (begin_of(process + 1) <= rank) ++process;
  return process;
}

int RankGroup::local_rank(int local) const noexcept {
  int rank = local;
  for (std::size_t i = 0; i < processes_.number_here(); ++i) {
    rank += count_of(processes_.neighbours()[i].process);
  }
  return rank;
}

int RankGroup::local_size() const noexcept {
  int size = 0;
  for (const Neighbour& each : processes_.neighbours()) size += count_of(each.process);
  return size;
}

double RankGroup::share_of_processors() const {
  return detail::share_of_processors(processes_.neighbours(), processes_.number_here(),
                                     [this](int process) { return count_of(process); });
}

std::vector<int> RankGroup::ranks_of(const std::vector<int>& processes) const {
  std::vector<int> ranks;
  for (const int process : processes) {
    for (int i = begin_of(process); i < begin_of(process + 1); ++i) ranks.push_back(i);
  }
  return ranks;
}

// Joining and waiting ----------------------------------------------------------------------------

std::shared_ptr<Job> RankGroup::join(int local, JobKind kind, std::string_view place, int root,
                                     Job::Part part) {
  std::unique_lock lock(mutex_);
  if (failed_ >= 0) {
    throw CommunicationError(
        fmt::format("distributed: {}: expected rank {} there, which has failed", place, failed_));
  }
  const auto index = static_cast<std::size_t>(local);
  std::shared_ptr<Job>& open = open_[calls_[index]];
  if (open == nullptr) {
    open = std::make_shared<Job>();
    open->kind = kind;
    open->place = place;
    open->root = root;
    open->call = call_of(kind, place, root);
    open->parts.resize(static_cast<std::size_t>(count()));
  }
  const std::shared_ptr<Job> job = open;
  if (job->abandoned) {
    throw CommunicationError(fmt::format(
        "distributed: {}: expected to come while the others wait, one has given up", place));
  }
  for (const Job::Part& other : job->parts) {
    if (!other.joined) continue;
    QUANTA_CHECK(job->kind == kind && job->place == place && job->root == root,
                 "distributed: expected {} '{}' as another rank calls it, got {} '{}'",
                 name_of(job->kind), job->place, name_of(kind), place);
    QUANTA_CHECK(size_of(other) == size_of(part),
                 "distributed: {}: expected {} bytes as another rank has, got {}", place,
                 size_of(other), size_of(part));
    break;
  }
  part.joined = true;
  job->parts[index] = std::move(part);
  if (++job->joined == count()) {
    open_.erase(calls_[index]);
    ++calls_[index];
    lock.unlock();
    if (processes_.size() == 1) {
      run(*job);
    } else {
      processes_.submit([self = shared_from_this(), job] { self->run(*job); });
    }
    return job;
  }
  ++calls_[index];
  return job;
}

void RankGroup::wait(Job& job, int local) {
  const Clock::time_point begin = Clock::now();
  std::unique_lock lock(mutex_);
  // The thread of MPI keeps the limit for what has been joined.
  const auto ready = [&] { return job.done || (failed_ >= 0 && job.joined < count()); };
  const std::chrono::milliseconds limit = processes_.time_limit();
  while (!ready()) {
    if (changed_.wait_for(lock, std::chrono::milliseconds(200), ready)) break;
    if (job.joined == count() || Clock::now() - begin < limit) continue;
    std::vector<int> missing;
    for (int i = 0; i < count(); ++i) {
      if (!job.parts[static_cast<std::size_t>(i)].joined) missing.push_back(first() + i);
    }
    // Nobody may join what this rank's memory is part of.
    job.abandoned = true;
    throw waited_in_vain(job.place, missing);
  }
  seconds_waited_[static_cast<std::size_t>(local)] +=
      std::chrono::duration<double>(Clock::now() - begin).count();
  if (!job.done) {
    throw CommunicationError(fmt::format(
        "distributed: {}: expected rank {} there, which has failed", job.place, failed_));
  }
  if (job.error) std::rethrow_exception(job.error);
}

CommunicationError RankGroup::waited_in_vain(std::string_view place,
                                             const std::vector<int>& ranks) const {
  return CommunicationError(fmt::format(
      "distributed: {}: expected all ranks to come within {:.1f} s, waited in vain for {}", place,
      std::chrono::duration<double>(processes_.time_limit()).count(), fmt::join(ranks, ", ")));
}

double RankGroup::seconds_waited(int local) const {
  const std::lock_guard lock(mutex_);
  return seconds_waited_[static_cast<std::size_t>(local)];
}

bool RankGroup::fail(int local) noexcept {
  const std::lock_guard lock(mutex_);
  if (failed_ >= 0) return false;
  failed_ = first() + local;
  changed_.notify_all();
  return true;
}

// Calculating ------------------------------------------------------------------------------------

void RankGroup::run(Job& job) noexcept {
  // Behind one that somebody did not come to, none waits again.
  std::exception_ptr error = lost_;
  if (!error) {
    error = try_to_calculate(job);
    // Messages of the next one would meet what is left of this one.
    if (error && processes_.size() > 1) lost_ = error;
    if (processes_.is_memory_lost()) end_all(error);
  }
  const std::lock_guard lock(mutex_);
  job.error = error;
  job.done = true;
  changed_.notify_all();
}

std::exception_ptr RankGroup::try_to_calculate(Job& job) noexcept {
  try {
    try {
      calculate(job);
    } catch (const Absent& absent) {
      throw waited_in_vain(job.place, ranks_of(absent.processes));
    } catch (const Astray& astray) {
      throw CommunicationError(fmt::format(
          "distributed: {}: expected all ranks in this {} with as many bytes, got {} of rank {}",
          job.place, name_of(job.kind), astray.has_ended ? "the end" : "another call",
          fmt::join(ranks_of({astray.process}), ", ")));
    }
  } catch (...) {
    return std::current_exception();
  }
  return nullptr;
}

// Callers may free the memory of their calls when these throw. Where messages still go there, none
// returns.
void RankGroup::end_all(const std::exception_ptr& error) noexcept {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    std::fprintf(stderr, "rank %d: %s\n", first(), known.what());
  } catch (...) {
  }
  std::fflush(nullptr);
  processes_.abort();
}

void RankGroup::calculate(Job& job) {
  const auto add = [](auto a, auto b) { return a + b; };
  switch (job.kind) {
    case JobKind::Barrier: {
      for (Job::Part& part : job.parts) part.in = {};
      gather(job);
      break;
    }
    case JobKind::SumFloat:
      combine<float>(job, add);
      break;
    case JobKind::SumDouble:
      combine<double>(job, add);
      break;
    case JobKind::SumInt64:
      combine<std::int64_t>(job, [](std::int64_t a, std::int64_t b) {
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) +
                                         static_cast<std::uint64_t>(b));
      });
      break;
    case JobKind::MinFloat:
      combine<float>(job, [](float a, float b) { return b < a ? b : a; });
      break;
    case JobKind::MaxFloat:
      combine<float>(job, [](float a, float b) { return b > a ? b : a; });
      break;
    case JobKind::Broadcast:
      broadcast(job);
      break;
    case JobKind::AllGather:
    case JobKind::Gather:
      gather(job);
      break;
  }
}

// Piece p of `bytes` is right in process p; now all pieces are in all processes.
void RankGroup::share_pieces(const Job& job, std::span<std::byte> bytes, std::size_t unit) {
  const int processes = processes_.size();
  const std::span<const std::byte> mine = piece_of(bytes, unit, processes_.rank(), processes);
  const Outgoing to(static_cast<std::size_t>(processes), mine);
  Incoming from;
  for (int p = 0; p < processes; ++p) from.push_back(piece_of(bytes, unit, p, processes));
  processes_.exchange(to, from, job.call);
}

// Process p gets piece p of all ranks, combines them in the ranks' order, and gives the result to the
// others: each byte is sent twice, however many processes there are.
template <typename T, typename Combine>
void RankGroup::combine(Job& job, const Combine& combine) {
  const int processes = processes_.size();
  const int me = processes_.rank();
  const std::span<std::byte> whole = job.parts.front().in_out;
  std::vector<std::vector<std::byte>> packed;  // what goes to each process, and what came
  std::vector<std::vector<std::byte>> received;
  Outgoing to;
  Incoming from;
  const std::size_t length = piece_of(whole, sizeof(T), me, processes).size();
  for (int p = 0; p < processes; ++p) {
    std::vector<std::byte>& bytes = packed.emplace_back();
    std::vector<std::byte>& theirs = received.emplace_back();
    if (p != me) {
      if (count() > 1) {
        for (const Job::Part& part : job.parts) {
          const auto piece = piece_of(part.in_out, sizeof(T), p, processes);
          bytes.insert(bytes.end(), piece.begin(), piece.end());
        }
      }
      theirs.resize(length * static_cast<std::size_t>(count_of(p)));
    }
    to.push_back(count() > 1
                     ? std::span<const std::byte>(bytes)
                     : piece_of(std::span<const std::byte>(whole), sizeof(T), p, processes));
    from.emplace_back(theirs);
  }
  processes_.exchange(to, from, job.call);

  std::vector<T> result(length / sizeof(T));
  bool is_first = true;
  const auto take = [&](std::span<const std::byte> bytes) {
    const auto* values = reinterpret_cast<const T*>(bytes.data());
    for (std::size_t i = 0; i < result.size(); ++i) {
      result[i] = is_first ? values[i] : combine(result[i], values[i]);
    }
    is_first = false;
  };
  for (int p = 0; p < processes; ++p) {
    if (p == me) {
      for (const Job::Part& part : job.parts) {
        take(piece_of(part.in_out, sizeof(T), me, processes));
      }
      continue;
    }
    const std::span<const std::byte> bytes = received[static_cast<std::size_t>(p)];
    for (int i = 0; i < count_of(p); ++i) {
      take(bytes.subspan(static_cast<std::size_t>(i) * length, length));
    }
  }
  if (length != 0) {
    std::memcpy(piece_of(whole, sizeof(T), me, processes).data(), result.data(), length);
  }
  share_pieces(job, whole, sizeof(T));
  for (std::size_t i = 1; i < job.parts.size(); ++i) {
    if (!whole.empty()) std::memcpy(job.parts[i].in_out.data(), whole.data(), whole.size());
  }
}

void RankGroup::broadcast(Job& job) {
  const int processes = processes_.size();
  const int root = process_of(job.root);
  const bool is_root = root == processes_.rank();
  const std::span<std::byte> whole =
      job.parts[static_cast<std::size_t>(is_root ? job.root - first() : 0)].in_out;
  Outgoing to(static_cast<std::size_t>(processes));
  Incoming from(static_cast<std::size_t>(processes));
  if (whole.size() <= kSmallBroadcast) {
    if (is_root) {
      std::fill(to.begin(), to.end(), whole);
    } else {
      from[static_cast<std::size_t>(root)] = whole;
    }
    processes_.exchange(to, from, job.call);
  } else {
    // A piece to each, which they share: the root's link carries it twice, not once for each.
    for (int p = 0; p < processes; ++p) {
      if (is_root) to[static_cast<std::size_t>(p)] = piece_of(whole, 1, p, processes);
    }
    if (!is_root) {
      from[static_cast<std::size_t>(root)] = piece_of(whole, 1, processes_.rank(), processes);
    }
    processes_.exchange(to, from, job.call);
    share_pieces(job, whole, 1);
  }
  for (Job::Part& part : job.parts) {
    if (part.in_out.data() != whole.data() && !whole.empty()) {
      std::memcpy(part.in_out.data(), whole.data(), whole.size());
    }
  }
}

void RankGroup::gather(Job& job) {
  const int processes = processes_.size();
  const int me = processes_.rank();
  const bool to_all = job.kind != JobKind::Gather;
  const auto wanted_by = [&](int p) { return to_all || process_of(job.root) == p; };

  // Lengths first.
  std::vector<std::uint64_t> mine;
  std::vector<std::byte> packed;
  for (const Job::Part& part : job.parts) {
    mine.push_back(part.in.size());
    packed.insert(packed.end(), part.in.begin(), part.in.end());
  }
  std::vector<std::vector<std::uint64_t>> lengths;
  Outgoing to;
  Incoming from;
  for (int p = 0; p < processes; ++p) {
    lengths.emplace_back(static_cast<std::size_t>(wanted_by(me) ? count_of(p) : 0));
    if (p == me) lengths.back() = mine;
  }
  for (int p = 0; p < processes; ++p) {
    to.push_back(wanted_by(p) ? std::as_bytes(std::span(mine)) : std::span<const std::byte>());
    from.push_back(std::as_writable_bytes(std::span(lengths[static_cast<std::size_t>(p)])));
  }
  processes_.exchange(to, from, job.call);

  std::vector<std::vector<std::byte>> received(static_cast<std::size_t>(processes));
  for (int p = 0; p < processes; ++p) {
    const auto index = static_cast<std::size_t>(p);
    std::uint64_t length = 0;
    for (const std::uint64_t each : lengths[index]) length += each;
    to[index] = wanted_by(p) ? std::span<const std::byte>(packed) : std::span<const std::byte>();
    if (p != me && wanted_by(me)) received[index].resize(length);
    from[index] = received[index];
  }
  if (job.kind != JobKind::Barrier) processes_.exchange(to, from, job.call);
  if (!wanted_by(me)) return;

  std::vector<std::vector<std::byte>> all;
  for (int p = 0; p < processes; ++p) {
    const auto index = static_cast<std::size_t>(p);
    std::span<const std::byte> bytes = p == me ? packed : received[index];
    for (const std::uint64_t length : lengths[index]) {
      all.emplace_back(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
      bytes = bytes.subspan(length);
    }
  }
  for (std::size_t i = 0; i < job.parts.size(); ++i) {
    if (to_all || job.root - first() == static_cast<int>(i)) job.parts[i].out = all;
  }
}

}  // namespace quanta::distributed::detail
