#pragma once

#include <memory>
#include <nlohmann/json.hpp>

#include "bench.h"
#include "bench_subject.h"
#include "streams.h"

namespace quanta::cli {

/// So many streams that call one subject, whose weights they share, each with inputs of its own and
/// ops that use `threads` threads.
std::unique_ptr<Streams> make_streams(const BenchSubject& subject, int count, int threads);

/// Times options.streams streams and one of them in turns: requests and inputs per second, median
/// and 99th percentile of the latency, and the ratio to one stream, the median of the rounds.
nlohmann::json time_streams(const BenchSubject& subject, const BenchOptions& options);

/// What time_streams found, as text.
void print_streams(const nlohmann::json& figures);

}  // namespace quanta::cli
