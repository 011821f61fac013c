// NCCL 2.26. The communicator is known from its first operation on.
#include "adapter.h"

namespace {

using V3 = mycroft::Adapter<3, mycroft::abi::Descr3>;

int init(void** context, int* mask) {
    return V3::init(context, mask, {0, nullptr, 0, 0, -1, 3, 0}, nullptr, __builtin_return_address(0));
}

}  // namespace

MYCROFT_EXPORT mycroft::abi::Profiler3 ncclProfiler_v3;
mycroft::abi::Profiler3 ncclProfiler_v3 = {"Mycroft", init, V3::start, V3::stop, V3::state, V3::finalize};
