// Settings that the sanitizers read at start-up, linked into every program of a sanitizer build.

#pragma GCC visibility push(default)  // the sanitizers' libraries look these up by name
extern "C" {

// Memory that is not there is an answer (Storage says so), not the end of the process; so much is never
// there, whatever the system promises.
const char* __asan_default_options() {
  return "detect_stack_use_after_return=1:allocator_may_return_null=1:max_allocation_size_mb=16384";
}

const char* __ubsan_default_options() { return "print_stacktrace=1"; }

// LLVM's OpenMP tells ThreadSanitizer what orders the threads of a region (its tool Archer, which it
// loads by itself), but is not compiled for it: what it does with its own memory is not judged, nor
// is what oneDNN does. Children of fork have threads in a test.
const char* __tsan_default_options() { return "ignore_noninstrumented_modules=1:die_after_fork=0"; }

}  // extern "C"
#pragma GCC visibility pop
