// One word of shared memory: written by any thread, read by any process, never torn.
//
// Plain relaxed loads and stores unless said otherwise. A counter with one writer uses `bump`, which
// costs two moves; one with several uses `add`.
#pragma once

namespace mycroft {

// The races test builds the plugin with this: now and then it lets the other threads run first.
#if defined(MYCROFT_SHAKE)
void shake();
#else
inline void shake() {}
#endif

template <class T>
struct Cell {
    static_assert(sizeof(T) <= 8, "must be lock-free");

    T get() const { return __atomic_load_n(&word, __ATOMIC_RELAXED); }
    T acquire() const {
        shake();
        return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
    }
    void set(T value) {
        shake();
        __atomic_store_n(&word, value, __ATOMIC_RELAXED);
    }
    void release(T value) {
        shake();
        __atomic_store_n(&word, value, __ATOMIC_RELEASE);
    }
    void bump(T by = 1) { set(static_cast<T>(get() + by)); }
    T add(T by = 1) { return __atomic_fetch_add(&word, by, __ATOMIC_RELAXED); }
    T mark(T bits) { return __atomic_fetch_or(&word, bits, __ATOMIC_RELAXED); }
    bool swap(T& expected, T desired) {
        shake();
        return __atomic_compare_exchange_n(&word, &expected, desired, false, __ATOMIC_ACQ_REL,
                                           __ATOMIC_ACQUIRE);
    }
    void raise(T value) {
        for (T now = get(); now < value && !swap(now, value);) {
        }
    }
    void lower(T value) {
        for (T now = get(); now > value && !swap(now, value);) {
        }
    }

    T word;
};

// What was written before it is seen before what is written after it. (ThreadSanitizer knows no fences; the
// words around ours are atomic, so there is no race for it to find.)
inline void release_fence() {
#if !defined(__SANITIZE_THREAD__)
    __atomic_thread_fence(__ATOMIC_RELEASE);
#endif
}

// Text that may be written anew while others read it: NUL-terminated, cut to fit.
inline void set_text(char* into, unsigned long size, const char* text) {
    unsigned long at = 0;
    for (; text != nullptr && at + 1 < size && text[at] != '\0'; ++at) {
        __atomic_store_n(&into[at], text[at], __ATOMIC_RELAXED);
    }
    for (; at < size; ++at) __atomic_store_n(&into[at], '\0', __ATOMIC_RELAXED);
}

}  // namespace mycroft
