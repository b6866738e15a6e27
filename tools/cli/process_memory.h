#pragma once

namespace quanta::cli {

/// Resident memory of this process in MB (2^20 bytes, as /proc counts).
struct ProcessMemory {
  double resident = 0.0;
  double peak = 0.0;  ///< since the start or reset_memory_peak
};
ProcessMemory process_memory();

/// Gives unused memory back to the system and lets the peak start anew. False when the system
/// does not allow it.
bool reset_memory_peak();

/// Seconds of CPU time that this process has used, all threads.
double process_cpu_seconds();

/// Milliseconds since this process was started.
double milliseconds_since_start();

}  // namespace quanta::cli
