#include "process_memory.h"

#include <malloc.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <sstream>
#include <string>

#include "quanta/runtime/allocator.h"

namespace quanta::cli {

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    std::istringstream words(line);
    std::string key;
    double kilobytes = 0.0;
    words >> key >> kilobytes;
    if (key == "VmRSS:") memory.resident = kilobytes / 1024.0;
    if (key == "VmHWM:") memory.peak = kilobytes / 1024.0;
  }
  return memory;
}

bool reset_memory_peak() {
  empty_cache();
  malloc_trim(0);
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5" << std::flush;
  return clear.good();
}

double process_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double milliseconds_since_start() {
  // Field 22 of /proc/self/stat: clock ticks from boot to the start; the command stands in
  // parentheses before and may hold anything.
  std::ifstream file("/proc/self/stat");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  const std::size_t end = text.rfind(')');
  if (end == std::string::npos) return 0.0;
  std::istringstream fields(text.substr(end + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i) fields >> field;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double started = std::stod(field) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return 1e3 *
         (static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - started);
}

}  // namespace quanta::cli
