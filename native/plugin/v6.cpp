// NCCL 2.29 and 2.30: copy-engine events.
#include "adapter.h"

namespace {

using V6 = mycroft::Adapter<6, mycroft::abi::Descr6>;

int init(void** context, uint64_t id, int* mask, const char* name, int nnodes, int nranks, int rank,
         mycroft::abi::Logger log) {
    return V6::init(context, mask, {id, name, nnodes, nranks, rank, 6, 0}, log, __builtin_return_address(0));
}

}  // namespace

MYCROFT_EXPORT mycroft::abi::Profiler6 ncclProfiler_v6;
mycroft::abi::Profiler6 ncclProfiler_v6 = {"Mycroft", init, V6::start, V6::stop, V6::state, V6::finalize};
