#pragma once

// Private: messages of MPI that are on their way. For the thread that speaks to MPI.

#include <mpi.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace quanta::distributed::detail {

/// Throws CommunicationError for what an MPI function gave unless that is MPI_SUCCESS.
void require(int code, std::string_view call);

/// A message that nobody waits for.
struct Stray {
  int process = 0;
  int tag = 0;
  bool operator==(const Stray&) const = default;
};

/// The messages of one exchange between processes: all with one tag, each cut into pieces that MPI can
/// count.
class Messages {
 public:
  Messages(MPI_Comm world, int tag) : world_(world), tag_(tag) {}
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  /// Begins it; the memory has to stay until test() is true or settle() has been called.
  void receive(std::span<std::byte> bytes, int from);
  void send(std::span<const std::byte> bytes, int to);

  /// Whether all have arrived. Throws Astray for one of another length, CommunicationError.
  bool test();
  /// The processes that the unfinished ones are with, in order.
  std::vector<int> missing();
  /// A process that is certain to send nothing more of this tag: its message has not come, and one of
  /// another tag has. Throws as test().
  std::optional<Stray> stray();

  /// Behind a failure: takes back what has not begun to arrive and waits for the rest, so that nothing
  /// reads or writes the memory any more. False where that is not over within seconds.
  bool settle() noexcept;

 private:
  struct Message {
    int peer = 0;
    bool is_received = false;
    std::size_t length = 0;
  };

  template <typename Byte, typename Begin>
  void for_pieces(std::span<Byte> bytes, int peer, bool is_received, const Begin& begin);
  bool test(std::size_t i);
  bool take_back(std::size_t i);
  void check(int code, std::size_t i) const;
  void check_length(const MPI_Status& status, std::size_t i);

  MPI_Comm world_;
  int tag_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<Message> messages_;
};

}  // namespace quanta::distributed::detail
