#include "quanta/fusion/distributed/detail/processes.h"

#include <fmt/format.h>
#include <mpi.h>
#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "quanta/fusion/distributed/communicator.h"

namespace quanta::distributed::detail {
namespace {

using Clock = std::chrono::steady_clock;

// MPI counts with int.
constexpr std::size_t kPieceBytes = std::size_t{1} << 30U;
// Of the last exchange, which is no answer to one that others still make.
constexpr int kEndTag = 2;
// How long the thread looks again and again before it sleeps, and the longest sleep.
constexpr auto kSpin = std::chrono::microseconds(100);
constexpr auto kLongestSleep = std::chrono::microseconds(500);

void require(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  throw CommunicationError(fmt::format("distributed: {}: {}", call, text));
}

// The messages of one exchange that are on their way.
class Messages {
 public:
  Messages(MPI_Comm world, int tag) : world_(world), tag_(tag) {}
  ~Messages() {
    // Only behind a failure: nothing may be written to what the caller frees.
    for (MPI_Request& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  void receive(std::span<std::byte> bytes, int from) {
    for_pieces(bytes, from, [&](std::span<std::byte> piece, MPI_Request* request) {
      require(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, tag_, world_,
                        request),
              "MPI_Irecv");
    });
  }
  void send(std::span<const std::byte> bytes, int to) {
    for_pieces(bytes, to, [&](std::span<const std::byte> piece, MPI_Request* request) {
      require(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, tag_, world_,
                        request),
              "MPI_Isend");
    });
  }

  // Whether all have arrived.
  bool test() {
    if (requests_.empty()) return true;
    int all = 0;
    require(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
    if (all != 0) requests_.clear();
    return all != 0;
  }

  // Whom the unfinished ones are with.
  std::vector<int> missing() {
    std::vector<int> peers;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      MPI_Test(&requests_[i], &done, MPI_STATUS_IGNORE);
      if (done == 0) peers.push_back(peers_[i]);
    }
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    return peers;
  }

 private:
  template <typename Byte, typename Begin>
  void for_pieces(std::span<Byte> bytes, int peer, const Begin& begin) {
    for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
      MPI_Request request = MPI_REQUEST_NULL;
      begin(bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at)), &request);
      requests_.push_back(request);
      peers_.push_back(peer);
    }
  }

  MPI_Comm world_;
  int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<int> peers_;
};

}  // namespace

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
  MPI_Comm_rank(machine, &local_rank_);
  MPI_Comm_size(machine, &local_size_);
  cpu_set_t mine;
  CPU_ZERO(&mine);
  sched_getaffinity(0, sizeof(mine), &mine);
  std::vector<cpu_set_t> all(static_cast<std::size_t>(local_size_));
  require(MPI_Allgather(&mine, sizeof(mine), MPI_BYTE, all.data(), sizeof(mine), MPI_BYTE, machine),
          "MPI_Allgather");
  share_processors_ = std::all_of(all.begin(), all.end(), [&](const cpu_set_t& other) {
    return CPU_EQUAL(&mine, &other) != 0;
  });
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
    exchange(to, from, kEndTag);
    MPI_Comm_free(&world_->all);
    MPI_Finalize();
  } catch (const CommunicationError& error) {
    fmt::print(stderr, "rank {}: {}\n", rank_, error.what());
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

void Processes::exchange(const Outgoing& to, const Incoming& from, int tag) {
  Messages messages(world_->all, tag);
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
  const Clock::time_point begin = Clock::now();
  auto sleep = std::chrono::microseconds(0);
  while (!messages.test()) {
    abort_if_asked();
    const Clock::duration waited = Clock::now() - begin;
    if (waited < kSpin) continue;
    const std::chrono::milliseconds limit = limit_;
    if (limit != std::chrono::milliseconds::max() && waited > limit) {
      throw Absent{messages.missing()};
    }
    if (sleep < kLongestSleep) sleep += std::chrono::microseconds(5);
    std::this_thread::sleep_for(sleep);
  }
}

void Processes::abort_if_asked() noexcept {
  if (abort_) MPI_Abort(world_->all, 1);
}

void Processes::abort() noexcept {
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
