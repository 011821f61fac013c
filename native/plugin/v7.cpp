// NCCL 2.31 and later: user tags.
#include "adapter.h"

namespace {

using V7 = mycroft::Adapter<7, mycroft::abi::Descr7>;

int init(void** context, uint64_t id, int* mask, const char* name, int nnodes, int nranks, int rank,
         mycroft::abi::Logger log) {
    return V7::init(context, mask, {id, name, nnodes, nranks, rank, 7, 0}, log, __builtin_return_address(0));
}

}  // namespace

MYCROFT_EXPORT mycroft::abi::Profiler7 ncclProfiler_v7;
mycroft::abi::Profiler7 ncclProfiler_v7 = {"Mycroft", init, V7::start, V7::stop, V7::state, V7::finalize};
