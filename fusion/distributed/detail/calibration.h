#pragma once

// Private: collectors that several ranks fill together.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "quanta/fusion/distributed/communicator.h"
#include "quanta/observers/collector.h"
#include "quanta/observers/statistics_file.h"
#include "quanta/observers/value_range.h"
#include "quanta/runtime/state_dict.h"

namespace quanta::distributed::detail {

/// Goes through batches 0 .. count - 1 in rounds. In each the ranks take batches that lie side by side,
/// lower ranks the lower ones, and then every rank's collectors hold what one collector would hold that
/// saw all batches so far, one after the other.
///
/// What a batch is worth (its digest) is found by all ranks at once, in the frames that their collectors
/// have: those of the round's beginning, as far as their own batches have not moved them. Then all tell
/// each other what moves frames. A rank whose frames turn out to have been moved by lower ranks' batches
/// runs its own once more. Last, rank after rank absorbs its digests in order.
class Calibration {
 public:
  /// Runs batches begin .. end - 1; `is_repeated` when they have run before.
  using Run = std::function<void(std::int64_t begin, std::int64_t end, bool is_repeated)>;

  /// Throws UnsupportedError for collectors without digests, listing all, ArgumentError for null and
  /// where ranks have other collectors or another `task` than rank 0. Ends with rank 0's statistics
  /// on all ranks.
  Calibration(const Statistics& collectors, const Communicator& comm, std::string_view task);
  ~Calibration();
  Calibration(const Calibration&) = delete;
  Calibration& operator=(const Calibration&) = delete;

  /// `combine_every`: batches of each rank in a round; 0: 64, but with frames at first 1, fewer when
  /// batches had to run again and more when they had not. When something throws, all collectors are as
  /// they were before the constructor.
  void run(std::int64_t count, std::int64_t combine_every, const Run& run_batches);

 private:
  struct Member {
    std::string name;
    std::shared_ptr<Collector> collector;
    bool is_framed = false;
    bool is_heard = false;
    std::vector<Digest> digests{};
    std::vector<ValueRange> ranges{};  ///< of all digests, before they were joined

    void hear(const Digest& digest);
    void forget();
  };
  struct Batches {
    std::int64_t begin, end;
  };

  StateDict save() const;
  void load(const StateDict& state);
  void check_alike(std::string_view task) const;
  void listen(bool on);
  bool is_any_framed() const;
  /// Whether frames had moved, so that batches were to run again.
  bool run_round(Batches mine, const Run& run_batches);
  /// Hears those again whose frames lower ranks have moved; whether there are any.
  bool move_frames(const StateDict& before);
  void combine(const StateDict& before);
  std::vector<std::byte> ranges_of_all() const;
  void move_frames_by(std::span<const std::byte> ranges);

  std::vector<Member> members_;
  Communicator comm_;
  StateDict at_first_;
};

}  // namespace quanta::distributed::detail
