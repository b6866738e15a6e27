#include "quanta/fusion/distributed/detail/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <thread>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/fusion/distributed/detail/processes.h"

namespace quanta::distributed::detail {
namespace {

using Clock = std::chrono::steady_clock;

// MPI counts with int.
constexpr std::size_t kPieceBytes = std::size_t{1} << 30U;
// How long what is on its way may take when nobody wants it any more.
constexpr auto kSettle = std::chrono::seconds(2);

}  // namespace

void require(int code, std::string_view call) {
  if (code == MPI_SUCCESS) return;
  std::string text(MPI_MAX_ERROR_STRING, '\0');
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  text.resize(static_cast<std::size_t>(length));
  throw CommunicationError(fmt::format("distributed: {}: {}", call, text));
}

template <typename Byte, typename Begin>
void Messages::for_pieces(std::span<Byte> bytes, int peer, bool is_received, const Begin& begin) {
  for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
    const std::span<Byte> piece = bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at));
    // Room first: a message that has begun is never forgotten.
    messages_.push_back({peer, is_received, piece.size()});
    requests_.push_back(MPI_REQUEST_NULL);
    begin(piece, &requests_.back());
  }
}

void Messages::receive(std::span<std::byte> bytes, int from) {
  for_pieces(bytes, from, true, [&](std::span<std::byte> piece, MPI_Request* request) {
    require(MPI_Irecv(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, from, tag_, world_,
                      request),
            "MPI_Irecv");
  });
}

void Messages::send(std::span<const std::byte> bytes, int to) {
  for_pieces(bytes, to, false, [&](std::span<const std::byte> piece, MPI_Request* request) {
    require(MPI_Isend(piece.data(), static_cast<int>(piece.size()), MPI_BYTE, to, tag_, world_,
                      request),
            "MPI_Isend");
  });
}

// Open MPI tells of a message that is too long only when the others are there too; stray() asks for
// each.
bool Messages::test() {
  if (requests_.empty()) return true;
  int all = 0;
  statuses_.resize(requests_.size());
  const int code =
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, statuses_.data());
  if (code == MPI_ERR_IN_STATUS) {
    for (std::size_t i = 0; i < requests_.size(); ++i) check(statuses_[i].MPI_ERROR, i);
  }
  require(code, "MPI_Testall");
  if (all == 0) return false;
  for (std::size_t i = 0; i < requests_.size(); ++i) check_length(statuses_[i], i);
  return true;
}

std::vector<int> Messages::missing() {
  std::vector<int> peers;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (!test(i)) peers.push_back(messages_[i].peer);
  }
  std::sort(peers.begin(), peers.end());
  peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
  return peers;
}

// Messages keep their order: behind one of another call none of this one comes. But where the one of
// this call has been found for its receive, it may still be on its way, overtaken by the next.
std::optional<Stray> Messages::stray() {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (!messages_[i].is_received || test(i)) continue;
    int found = 0;
    MPI_Status status;
    require(MPI_Iprobe(messages_[i].peer, MPI_ANY_TAG, world_, &found, &status), "MPI_Iprobe");
    if (found != 0 && status.MPI_TAG != tag_ && take_back(i)) {
      return Stray{messages_[i].peer, status.MPI_TAG};
    }
  }
  return std::nullopt;
}

bool Messages::take_back(std::size_t i) {
  MPI_Cancel(&requests_[i]);
  int done = 0;
  MPI_Status status;
  check(MPI_Test(&requests_[i], &done, &status), i);
  if (done == 0) return false;
  int cancelled = 0;
  MPI_Test_cancelled(&status, &cancelled);
  if (cancelled == 0) check_length(status, i);
  return cancelled != 0;
}

bool Messages::settle() noexcept {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] != MPI_REQUEST_NULL && messages_[i].is_received) MPI_Cancel(&requests_[i]);
  }
  const Clock::time_point begin = Clock::now();
  do {
    bool all = true;
    for (MPI_Request& request : requests_) {
      int done = 1;
      if (request != MPI_REQUEST_NULL) MPI_Test(&request, &done, MPI_STATUS_IGNORE);
      all = all && done != 0;
    }
    if (all) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (Clock::now() - begin < kSettle);
  return false;
}

bool Messages::test(std::size_t i) {
  if (requests_[i] == MPI_REQUEST_NULL) return true;
  int done = 0;
  MPI_Status status;
  check(MPI_Test(&requests_[i], &done, &status), i);
  if (done == 0) return false;
  check_length(status, i);
  return true;
}

void Messages::check(int code, std::size_t i) const {
  if (code == MPI_SUCCESS || code == MPI_ERR_PENDING) return;
  int kind = 0;
  MPI_Error_class(code, &kind);
  if (kind == MPI_ERR_TRUNCATE) throw Astray{messages_[i].peer, false};
  require(code, messages_[i].is_received ? "MPI_Irecv" : "MPI_Isend");
}

// MPI takes a message that is shorter than its place.
void Messages::check_length(const MPI_Status& status, std::size_t i) {
  Message& message = messages_[i];
  if (!message.is_received) return;
  message.is_received = false;  // checked: the request's next status is an empty one
  int count = 0;
  MPI_Get_count(&status, MPI_BYTE, &count);
  if (count < 0 || static_cast<std::size_t>(count) != message.length)
    throw Astray{message.peer, false};
}

}  // namespace quanta::distributed::detail
