// Settings that the sanitizers read at start-up, linked into every program of a sanitizer build.

#pragma GCC visibility push(default)  // the sanitizers' libraries look these up by name
extern "C" {

const char* __asan_default_options() { return "detect_stack_use_after_return=1"; }

const char* __ubsan_default_options() { return "print_stacktrace=1"; }

// GCC's libgomp is not built for ThreadSanitizer, which does not see the barriers that order the
// threads of a parallel region and would report every region. So races inside a region are not
// looked for (GCC names the body of a region "..._omp_fn.N"); races between callers' threads are.
const char* __tsan_default_suppressions() { return "race:_omp_fn\n"; }

}  // extern "C"
#pragma GCC visibility pop
