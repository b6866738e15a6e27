#pragma once

// Private: which sanitizers the code is compiled with. GCC has macros for them, clang features.

#if defined(__has_feature)
#define QUANTA_HAS_FEATURE(feature) __has_feature(feature)
#else
#define QUANTA_HAS_FEATURE(feature) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || QUANTA_HAS_FEATURE(address_sanitizer)
#define QUANTA_ADDRESS_SANITIZER 1
#else
#define QUANTA_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || QUANTA_HAS_FEATURE(thread_sanitizer)
#define QUANTA_THREAD_SANITIZER 1
#else
#define QUANTA_THREAD_SANITIZER 0
#endif
