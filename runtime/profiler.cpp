#include "quanta/runtime/profiler.h"

#include <algorithm>
#include <functional>
#include <span>
#include <string_view>
#include <unordered_map>

#include "quanta/runtime/atomic_file.h"
#include "quanta/runtime/detail/json.h"
#include "quanta/runtime/device_span.h"
#include "quanta/runtime/module_path.h"

namespace quanta {
namespace {

using Clock = std::chrono::steady_clock;

double microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

void add_name(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

detail::Json trace_event(const ProfileEvent& event, double begin_us, std::int64_t process) {
  detail::Json::Object args;
  if (event.kind == ProfileEvent::Kind::Op) {
    args.emplace_back("kernel", event.kernel);
    args.emplace_back("module", event.module);
    if (event.work.multiply_adds > 0) {
      args.emplace_back("multiply_adds", event.work.multiply_adds);
      args.emplace_back("GOP/s", giga_ops_per_second(event.work, event.duration_us));
    }
    if (event.work.bytes > 0) {
      args.emplace_back("bytes", event.work.bytes);
      args.emplace_back("GB/s", giga_bytes_per_second(event.work, event.duration_us));
    }
  }
  return detail::Json::Object{{"name", event.name},
                              {"cat", event.kind == ProfileEvent::Kind::Op ? "op" : "module"},
                              {"ph", "X"},
                              {"ts", event.start_us - begin_us},
                              {"dur", event.duration_us},
                              {"pid", process},
                              {"tid", std::int64_t{1}},
                              {"args", std::move(args)}};
}

detail::Json process_name(const std::string& name, std::int64_t process) {
  return detail::Json::Object{{"name", "process_name"},
                              {"ph", "M"},
                              {"pid", process},
                              {"tid", std::int64_t{1}},
                              {"args", detail::Json::Object{{"name", name}}}};
}

/// Outer slices before those that start with them.
std::vector<const ProfileEvent*> by_start(const std::vector<ProfileEvent>& events) {
  std::vector<const ProfileEvent*> sorted;
  sorted.reserve(events.size());
  // What ended later stands first among equals: it is around the others.
  for (auto event = events.rbegin(); event != events.rend(); ++event) sorted.push_back(&*event);
  std::stable_sort(sorted.begin(), sorted.end(), [](const ProfileEvent* a, const ProfileEvent* b) {
    return a->start_us < b->start_us;
  });
  return sorted;
}

}  // namespace

/// Notes what it hears. Paths are asked for once for each place in the tree of calls.
class Profiler::Recorder final : public OpListener {
 public:
  void op_ended(const OpEvent& event) override {
    events_.push_back(
        {.kind = ProfileEvent::Kind::Op,
         .name = std::string(event.op),
         .kernel = std::string(event.kernel),
         .module = running_.empty() ? current_module_path() : path_of(running_.back()),
         .start_us = microseconds(event.start - begin_),
         .duration_us = microseconds(event.duration),
         .depth = event.depth,
         .work = event.work});
    if (event.on_device == nullptr) return;
    unresolved_.push_back({events_.size() - 1, *event.on_device});
    if (!running_.empty()) running_.back().span.extend(*event.on_device);
  }

  void module_started(const void* module, std::size_t depth) override {
    if (!running_.empty() && running_.back().module == module) {
      ++running_.back().forwards;
      return;
    }
    const std::size_t parent = running_.empty() ? kNone : running_.back().place;
    const auto [known, is_new] = places_by_module_.try_emplace({parent, module}, places_.size());
    if (is_new) {
      std::string name = current_module_path();
      // The outermost module's path is its class's name there.
      places_.push_back({depth == 0 ? std::string() : name, name});
    }
    running_.push_back({module, known->second, Clock::now(), {}});
  }

  void module_ended() override {
    if (running_.empty()) return;  // it started before the profiler did
    if (--running_.back().forwards > 0) return;
    const Running call = running_.back();
    running_.pop_back();
    events_.push_back({.kind = ProfileEvent::Kind::Module,
                       .name = places_[call.place].name,
                       .kernel = {},
                       .module = places_[call.place].path,
                       .start_us = microseconds(call.start - begin_),
                       .duration_us = microseconds(Clock::now() - call.start),
                       .depth = 0,
                       .work = {}});
    if (call.span.is_empty()) return;
    unresolved_.push_back({events_.size() - 1, call.span});
    if (!running_.empty()) running_.back().span.extend(call.span);
  }

  /// Waits for the device where it is still at work on what was noted.
  const std::vector<ProfileEvent>& events() noexcept {
    for (const Unresolved& event : unresolved_) {
      try {
        resolve(event);
      } catch (...) {  // the device is broken: the time is that of asking
      }
    }
    unresolved_.clear();
    return events_;
  }
  void clear() noexcept {
    events_.clear();
    unresolved_.clear();
  }

 private:
  /// An event whose time the device knows.
  struct Unresolved {
    std::size_t event;
    DeviceSpan span;
  };

  // The device's clock is set by the first event: it began when it was asked for.
  void resolve(const Unresolved& unresolved) {
    ProfileEvent& event = events_[unresolved.event];
    if (first_.is_empty()) {
      first_ = unresolved.span;
      first_start_us_ = event.start_us;
    }
    event.duration_us = unresolved.span.microseconds();
    event.start_us = first_start_us_ + first_.microseconds_until(unresolved.span);
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  struct Place {
    std::string path, name;
  };
  struct Running {
    const void* module;
    std::size_t place;
    Clock::time_point start;
    DeviceSpan span;   // of its ops, where those ran on a device
    int forwards = 1;  // one may call another of the same module
  };
  struct Key {
    std::size_t parent;
    const void* module;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<const void*>()(key.module) * 31 + key.parent;
    }
  };

  const std::string& path_of(const Running& call) const { return places_[call.place].path; }

  Clock::time_point begin_ = Clock::now();
  std::vector<ProfileEvent> events_;
  std::vector<Unresolved> unresolved_;
  DeviceSpan first_;
  double first_start_us_ = 0.0;
  std::vector<Place> places_;
  std::unordered_map<Key, std::size_t, KeyHash> places_by_module_;
  std::vector<Running> running_;
};

Profiler::Profiler()
    : recorder_(std::make_unique<Recorder>()), scope_(std::make_unique<ListenScope>(*recorder_)) {}
Profiler::~Profiler() = default;

const std::vector<ProfileEvent>& Profiler::events() const noexcept { return recorder_->events(); }
void Profiler::clear() { recorder_->clear(); }
void Profiler::stop() { scope_.reset(); }
void Profiler::start() {
  if (scope_ == nullptr) scope_ = std::make_unique<ListenScope>(*recorder_);
}

std::vector<ModuleProfile> Profiler::modules() const {
  std::vector<ModuleProfile> rows;
  std::unordered_map<std::string_view, std::size_t> row_of;
  for (const ProfileEvent& event : recorder_->events()) {
    if (event.kind != ProfileEvent::Kind::Op || event.depth > 0) continue;
    const auto [known, is_new] = row_of.try_emplace(event.module, rows.size());
    if (is_new) rows.emplace_back().path = event.module;
    ModuleProfile& row = rows[known->second];
    add_name(row.ops, event.name);
    add_name(row.kernels, event.kernel);
    row.op_us += event.duration_us;
    row.work.multiply_adds += event.work.multiply_adds;
    row.work.bytes += event.work.bytes;
  }
  for (const ProfileEvent& event : recorder_->events()) {
    const auto known = row_of.find(event.module);
    if (event.kind != ProfileEvent::Kind::Module || known == row_of.end()) continue;
    ++rows[known->second].calls;
    rows[known->second].inclusive_us += event.duration_us;
  }
  return rows;
}

void Profiler::write_chrome_trace(const std::filesystem::path& path) const {
  quanta::write_chrome_trace({{"quanta", recorder_->events()}}, path);
}

double giga_ops_per_second(const OpWork& work, double microseconds) noexcept {
  if (microseconds <= 0.0) return 0.0;
  return 2.0 * static_cast<double>(work.multiply_adds) / microseconds * 1e-3;
}

double giga_bytes_per_second(const OpWork& work, double microseconds) noexcept {
  if (microseconds <= 0.0) return 0.0;
  return static_cast<double>(work.bytes) / microseconds * 1e-3;
}

void write_chrome_trace(const std::vector<ProfiledRun>& runs, const std::filesystem::path& path) {
  write_file_atomically(path, [&](const std::function<void(std::span<const std::byte>)>& sink) {
    std::string text = R"({"displayTimeUnit":"ns","traceEvents":[)";
    const auto flush = [&] {
      sink(std::as_bytes(std::span(text)));
      text.clear();
    };
    std::int64_t process = 0;
    for (const ProfiledRun& run : runs) {
      if (process > 0) text += ',';
      detail::write_json(process_name(run.name, ++process), text);
      const std::vector<const ProfileEvent*> events = by_start(run.events);
      for (const ProfileEvent* event : events) {
        text += ",\n";
        detail::write_json(trace_event(*event, events.front()->start_us, process), text);
        if (text.size() > (std::size_t{1} << 20)) flush();
      }
    }
    text += "]}\n";
    flush();
  });
}

}  // namespace quanta
