#include "quanta/fusion/distributed/detail/processes.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/fusion/distributed/detail/messages.h"

namespace quanta::distributed::detail {
namespace {

using Clock = std::chrono::steady_clock;

// Of the last exchange, which is no answer to one that others still make; and of all calls. MPI promises
// tags below 32768.
constexpr int kEndTag = 2;
constexpr int kFirstTag = 3;
constexpr std::uint64_t kTags = 32'000;
// How long the thread looks again and again before it sleeps, and the longest sleep.
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr auto kLongestSleep = std::chrono::microseconds(500);
// How often it looks whether a process that it waits for is in another call.
constexpr auto kStrayLook = std::chrono::milliseconds(100);
// Between two looks: this process did not run, which is nobody else's fault.
constexpr auto kPause = std::chrono::seconds(1);

std::vector<int> numbers_of(const cpu_set_t& processors) {
  std::vector<int> numbers;
  for (int i = 0; i < CPU_SETSIZE; ++i) {
    if (CPU_ISSET(i, &processors)) numbers.push_back(i);
  }
  return numbers;
}

}  // namespace

double share_of_processors(const std::vector<Neighbour>& neighbours, std::size_t me,
                           const std::function<int(int process)>& ranks) {
  const std::vector<int>& mine = neighbours[me].processors;
  if (mine.empty()) return 1.0;
  double share = 0.0;
  for (const int processor : mine) {
    int users = 0;
    for (const Neighbour& each : neighbours) {
      const std::vector<int>& theirs = each.processors;
      if (std::find(theirs.begin(), theirs.end(), processor) != theirs.end()) {
        users += ranks(each.process);
      }
    }
    share += 1.0 / users;
  }
  return share / static_cast<double>(mine.size());
}

struct Processes::World {
  MPI_Comm all = MPI_COMM_NULL;
};

Processes::Processes() : world_(std::make_unique<World>()) {
  thread_ = std::thread([this] { serve(); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return ready_; });
  if (failure_.empty()) return;
  lock.unlock();
  thread_.join();
  throw CommunicationError(failure_);
}

Processes::~Processes() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Processes::start() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized != 0) {
    throw CommunicationError("distributed: run: expected to be called once, MPI is in use already");
  }
  int level = 0;
  require(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init_thread");
  if (level < MPI_THREAD_FUNNELED) {
    throw CommunicationError("distributed: run: expected an MPI for programs with threads");
  }
  // Messages of ours are not mixed up with those of a library that uses MPI as well.
  require(MPI_Comm_dup(MPI_COMM_WORLD, &world_->all), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(world_->all, MPI_ERRORS_RETURN);
  MPI_Comm_rank(world_->all, &rank_);
  MPI_Comm_size(world_->all, &size_);

  MPI_Comm machine = MPI_COMM_NULL;
  require(MPI_Comm_split_type(world_->all, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &machine),
          "MPI_Comm_split_type");
  int number = 0;
  int count = 0;
  MPI_Comm_rank(machine, &number);
  MPI_Comm_size(machine, &count);
  struct Place {
    int process;
    cpu_set_t processors;
  };
  Place mine{rank_, {}};
  sched_getaffinity(0, sizeof(mine.processors), &mine.processors);
  std::vector<Place> all(static_cast<std::size_t>(count));
  require(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, machine),
          "MPI_Allgather");
  for (const Place& each : all) neighbours_.push_back({each.process, numbers_of(each.processors)});
  number_here_ = static_cast<std::size_t>(number);
  MPI_Comm_free(&machine);
}

void Processes::end() {
  // MPI_Finalize may wait actively for the others; this sleeps.
  std::vector<std::byte> bytes(static_cast<std::size_t>(size_));
  const std::byte one{1};
  Outgoing to(static_cast<std::size_t>(size_), std::span(&one, 1));
  Incoming from;
  for (std::byte& byte : bytes) from.emplace_back(&byte, 1);
  try {
    limit_ = std::chrono::milliseconds::max();
    exchange_tagged(to, from, kEndTag);
    MPI_Comm_free(&world_->all);
    MPI_Finalize();
  } catch (const CommunicationError& error) {
    fmt::print(stderr, "rank {}: {}\n", rank_, error.what());
  } catch (const Astray&) {
    MPI_Abort(world_->all, 1);  // one byte is what each sends: not reached
  }
}

void Processes::serve() {
  // Sleeps of microseconds are that, not 50 more.
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  try {
    start();
  } catch (const CommunicationError& error) {
    const std::lock_guard lock(mutex_);
    failure_ = error.what();
  }
  std::unique_lock lock(mutex_);
  ready_ = true;
  changed_.notify_all();
  if (!failure_.empty()) return;
  while (true) {
    changed_.wait(lock, [this] { return stop_ || abort_ || !queue_.empty(); });
    abort_if_asked();
    if (queue_.empty()) break;
    const std::function<void()> work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    work();
    lock.lock();
  }
  lock.unlock();
  end();
}

void Processes::submit(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void Processes::exchange(const Outgoing& to, const Incoming& from, std::uint64_t call) {
  exchange_tagged(to, from, kFirstTag + static_cast<int>(call % kTags));
}

void Processes::exchange_tagged(const Outgoing& to, const Incoming& from, int tag) {
  Messages messages(world_->all, tag);
  try {
    begin(messages, to, from);
    // Those that still make calls say so themselves to a process that has ended.
    wait_for(messages, tag != kEndTag);
  } catch (...) {
    if (!messages.settle()) is_memory_lost_ = true;
    throw;
  }
}

void Processes::begin(Messages& messages, const Outgoing& to, const Incoming& from) {
  for (int p = 0; p < size_; ++p) {
    if (p != rank_) messages.receive(from[static_cast<std::size_t>(p)], p);
  }
  // Each begins with another one, so that not all send to the same at once.
  for (int i = 1; i < size_; ++i) {
    const int p = (rank_ + i) % size_;
    const std::span<const std::byte> bytes = to[static_cast<std::size_t>(p)];
    if (bytes.empty()) continue;
    messages.send(bytes, p);
    bytes_sent_ += static_cast<std::int64_t>(bytes.size());
    ++messages_sent_;
  }
}

void Processes::wait_for(Messages& messages, bool look_for_strays) {
  Clock::time_point begin = Clock::now();
  Clock::time_point before = begin;
  Clock::time_point next_look = begin + kStrayLook;
  auto sleep = std::chrono::microseconds(0);
  while (!messages.test()) {
    abort_if_asked();
    const Clock::time_point now = Clock::now();
    if (now - before > kPause) begin += now - before;
    before = now;
    if (now - begin < kSpin) continue;
    const std::chrono::milliseconds limit = limit_;
    if (limit != std::chrono::milliseconds::max() && now - begin > limit) {
      std::vector<int> missing = messages.missing();
      if (!missing.empty()) throw Absent{std::move(missing)};
    }
    if (look_for_strays && now >= next_look) {
      next_look = now + kStrayLook;
      const std::optional<Stray> stray = messages.stray();
      if (stray) throw Astray{stray->process, stray->tag == kEndTag};
    }
    if (sleep < kLongestSleep) sleep += std::chrono::microseconds(5);
    std::this_thread::sleep_for(sleep);
  }
}

void Processes::abort_if_asked() noexcept {
  if (abort_) MPI_Abort(world_->all, 1);
}

void Processes::abort() noexcept {
  if (std::this_thread::get_id() == thread_.get_id()) MPI_Abort(world_->all, 1);
  {
    const std::lock_guard lock(mutex_);
    abort_ = true;
  }
  changed_.notify_all();
  // The launcher ends all of them; where it does not, this one at least.
  std::this_thread::sleep_for(std::chrono::seconds(10));
  std::_Exit(1);
}

}  // namespace quanta::distributed::detail
