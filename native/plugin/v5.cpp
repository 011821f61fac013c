// NCCL 2.28: API and launch events.
#include "adapter.h"

namespace {

using V5 = mycroft::Adapter<5, mycroft::abi::Descr5>;

int init(void** context, uint64_t id, int* mask, const char* name, int nnodes, int nranks, int rank,
         mycroft::abi::Logger log) {
    return V5::init(context, mask, {id, name, nnodes, nranks, rank, 5, 0}, log, __builtin_return_address(0));
}

}  // namespace

MYCROFT_EXPORT mycroft::abi::Profiler5 ncclProfiler_v5;
mycroft::abi::Profiler5 ncclProfiler_v5 = {"Mycroft", init, V5::start, V5::stop, V5::state, V5::finalize};
