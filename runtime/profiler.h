#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "quanta/runtime/op_listener.h"

namespace quanta {

/// A call of an op or of a module that has ended.
struct ProfileEvent {
  enum class Kind : std::uint8_t { Op, Module };
  Kind kind = Kind::Op;
  std::string name;    ///< the op's name, or the module's path (a whole network: its class's name)
  std::string kernel;  ///< the one that the op chose
  /// Dotted path of the module itself, or of the innermost one that ran the op; "" for the whole
  /// network and outside of modules.
  std::string module;
  double start_us = 0.0;  ///< since the profiler began
  double duration_us = 0.0;
  int depth = 0;  ///< for ops: 0, or 1 and more for those that run within another op
  OpWork work;    ///< for ops
};

/// What the ops of one module did, those of its children not included.
struct ModuleProfile {
  std::string path;
  std::vector<std::string> ops;      ///< names, each once
  std::vector<std::string> kernels;  ///< those that they chose, each once
  std::int64_t calls = 0;            ///< how often the module ran; 0 outside of modules
  double op_us = 0.0;                ///< time in ops; an op within another one is part of that
  double inclusive_us = 0.0;         ///< from start to end of the module, children included
  OpWork work;
};

/// Records the ops and modules that the calling thread runs while it lives.
///
///   Profiler profiler;
///   net(x);
///   for (const ModuleProfile& module : profiler.modules()) ...
///   profiler.write_chrome_trace("trace.json");
///
/// It belongs to the thread that made it and hears nothing of others; ops in threads of their own
/// are part of the op that started them. The innermost of several is the one that records.
/// Modules are told apart by their addresses: one may not go away and another take its place while
/// the profiler lives, or the new one appears under the old name.
/// An event costs some tenths of a microsecond, which the modules around it show.
/// On a CUDA device, which goes on while the thread asks for more, times are the device's own:
/// nothing waits for it before events(), modules() or a trace are asked for. A module's time there
/// is from the begin of its first op to the end of its last.
class Profiler {
 public:
  Profiler();
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// What has ended, in that order.
  const std::vector<ProfileEvent>& events() const noexcept;
  /// Forgets the events.
  void clear();
  /// Hears nothing until start(), which a new profiler has behind it. To be called outside of
  /// modules, and in the order of scopes where there are several profilers.
  void stop();
  void start();
  /// One row for each module that ran ops, in the order of their first ops.
  std::vector<ModuleProfile> modules() const;
  /// A file for chrome://tracing and ui.perfetto.dev: modules with their ops nested in them, each
  /// op with its kernel and rates. Written whole or not at all; throws FileError.
  void write_chrome_trace(const std::filesystem::path& path) const;

 private:
  class Recorder;
  std::unique_ptr<Recorder> recorder_;
  std::unique_ptr<ListenScope> scope_;
};

// Rates in 10^9 a second: operations, of which a multiply-add is two, and bytes. 0 where the work
// is not known.
double giga_ops_per_second(const OpWork& work, double microseconds) noexcept;
double giga_bytes_per_second(const OpWork& work, double microseconds) noexcept;

/// A run of a file of several, which the trace shows as a process with a name of its own.
struct ProfiledRun {
  std::string name;
  std::vector<ProfileEvent> events;
};
/// The file of Profiler::write_chrome_trace for several runs. Each begins at time 0, so that they
/// stand below each other. Throws FileError.
void write_chrome_trace(const std::vector<ProfiledRun>& runs, const std::filesystem::path& path);
/// The same with the path first, as earlier versions had it.
inline void write_chrome_trace(const std::filesystem::path& path,
                               const std::vector<ProfiledRun>& runs) {
  write_chrome_trace(runs, path);
}

}  // namespace quanta
