// Settings that the sanitizers read at start-up, linked into every program of a sanitizer build.

#pragma GCC visibility push(default)  // the sanitizers' libraries look these up by name
extern "C" {

const char* __asan_default_options() { return "detect_stack_use_after_return=1"; }

const char* __ubsan_default_options() { return "print_stacktrace=1"; }

// LLVM's OpenMP tells ThreadSanitizer what orders the threads of a region (its tool Archer, which it
// loads by itself), but is not compiled for it: what it does with its own memory is not judged, nor
// is what oneDNN does. Children of fork have threads in a test.
const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1:die_after_fork=0"; }

}  // extern "C"
#pragma GCC visibility pop
