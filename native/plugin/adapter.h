// One exported table. Each vN.cpp instantiates this with its descriptor and init.
#pragma once

#include "abi.h"
#include "core.h"
#include "events.h"
#include "hooks.h"
#include "surround.h"

namespace mycroft {

template <int Api, class Descr>
struct Adapter {
    static int start(void* context, void** handle, Descr* descr) {
        if (hooked()) return Surround<Api, Descr>::start(context, handle, descr);
        if (handle == nullptr) return 0;
        *handle = nullptr;
        if (descr != nullptr && on()) *handle = start_event<Api>(context, *descr);
        return 0;
    }

    static int stop(void* handle) {
        if (hooked()) return Surround<Api, Descr>::stop(handle);
        core_stop(handle);
        return 0;
    }

    static int state(void* handle, int state, abi::StateArgs* args) {
        if (hooked()) return Surround<Api, Descr>::state(handle, state, args);
        core_state(handle, state, args);
        return 0;
    }

    static int finalize(void* context) {
        if (hooked()) return Surround<Api, Descr>::finalize(context);
        core_close(context);
        return 0;
    }

    static int init(void** context, int* mask, const CommFacts& facts, abi::Logger log, const void* caller) {
        return Surround<Api, Descr>::init(context, mask, facts, log, caller);
    }
};

}  // namespace mycroft
