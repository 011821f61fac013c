// NCCL 2.27.
#include "adapter.h"

namespace {

using V4 = mycroft::Adapter<4, mycroft::abi::Descr4>;

int init(void** context, int* mask, const char* name, uint64_t hash, int nnodes, int nranks, int rank,
         mycroft::abi::Logger log) {
    return V4::init(context, mask, {hash, name, nnodes, nranks, rank, 4, 0}, log,
                    __builtin_return_address(0));
}

}  // namespace

MYCROFT_EXPORT mycroft::abi::Profiler4 ncclProfiler_v4;
mycroft::abi::Profiler4 ncclProfiler_v4 = {"Mycroft", init, V4::start, V4::stop, V4::state, V4::finalize};
