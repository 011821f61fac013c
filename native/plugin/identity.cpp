#include "identity.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

extern char** environ;

namespace mycroft {
namespace {

// Prefixes: what names a rank, a job or an attempt. Never everything: environments hold secrets.
constexpr const char* kAllowed[] = {
    "RANK=",
    "LOCAL_RANK=",
    "WORLD_SIZE=",
    "LOCAL_WORLD_SIZE=",
    "GROUP_RANK=",
    "NODE_RANK=",
    "MASTER_ADDR=",
    "MASTER_PORT=",
    "HOSTNAME=",
    "TORCHELASTIC_RESTART_COUNT=",
    "TORCHELASTIC_RUN_ID=",
    "TORCHELASTIC_MAX_RESTARTS=",
    "MYCROFT_",
    "SLURM_JOB_ID=",
    "SLURM_JOBID=",
    "SLURM_JOB_NAME=",
    "SLURM_JOB_START_TIME=",
    "SLURM_STEP_ID=",
    "SLURM_STEPID=",
    "SLURM_PROCID=",
    "SLURM_LOCALID=",
    "SLURM_NODEID=",
    "SLURM_NTASKS=",
    "SLURM_RESTART_COUNT=",
    "SLURM_CLUSTER_NAME=",
    "SLURMD_NODENAME=",
    "SLURM_ARRAY_JOB_ID=",
    "SLURM_ARRAY_TASK_ID=",
    "OMPI_COMM_WORLD_RANK=",
    "OMPI_COMM_WORLD_LOCAL_RANK=",
    "OMPI_COMM_WORLD_SIZE=",
    "PMI_RANK=",
    "PMIX_RANK=",
    "PMIX_NAMESPACE=",
    "POD_NAME=",
    "POD_NAMESPACE=",
    "POD_UID=",
    "POD_IP=",
    "NODE_NAME=",
    "JOB_NAME=",
    "JOB_COMPLETION_INDEX=",
    "KUBERNETES_NAMESPACE=",
    "RAY_JOB_ID=",
    "LSB_JOBID=",
    "PBS_JOBID=",
    "CUDA_VISIBLE_DEVICES=",
    "HIP_VISIBLE_DEVICES=",
    "ROCR_VISIBLE_DEVICES=",
};

bool allowed(const char* entry) {
    for (const char* prefix : kAllowed) {
        if (std::strncmp(entry, prefix, std::strlen(prefix)) == 0) return true;
    }
    return false;
}

size_t read_file(const char* path, char* into, size_t bytes) {
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    const ssize_t count = read(file, into, bytes - 1);
    close(file);
    const size_t length = count > 0 ? static_cast<size_t>(count) : 0;
    into[length] = '\0';
    return length;
}

int digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
}

template <class Function>
bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

bool read_cuda(Communicator& comm) {
    void* const library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) return false;
    int (*current)(int*) = nullptr;
    int (*bus_id)(char*, int, int) = nullptr;
    int (*uuid)(uint8_t*, int) = nullptr;
    int device = -1;
    const bool known = find(library, "cuCtxGetDevice", current) && current(&device) == 0 && device >= 0;
    if (known) {
        comm.device = device;
        if (find(library, "cuDeviceGetPCIBusId", bus_id)) bus_id(comm.bus_id, sizeof comm.bus_id, device);
        if (find(library, "cuDeviceGetUuid_v2", uuid) || find(library, "cuDeviceGetUuid", uuid)) {
            uuid(comm.uuid, device);
        }
    }
    dlclose(library);
    return known;
}

bool read_hip(Communicator& comm) {
    void* library = dlopen("libamdhip64.so", RTLD_LAZY | RTLD_NOLOAD);
    constexpr const char* kNames[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"};
    for (const char* name : kNames) {
        if (library == nullptr) library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD);
    }
    if (library == nullptr) return false;
    int (*current)(int*) = nullptr;
    int (*bus_id)(char*, int, int) = nullptr;
    int device = -1;
    const bool known = find(library, "hipGetDevice", current) && current(&device) == 0 && device >= 0;
    if (known) {
        comm.device = device;
        if (find(library, "hipDeviceGetPCIBusId", bus_id)) bus_id(comm.bus_id, sizeof comm.bus_id, device);
    }
    dlclose(library);
    return known;
}

}  // namespace

uint64_t random64() {
    uint64_t value = 0;
    if (getrandom(&value, sizeof value, GRND_NONBLOCK) == sizeof value && value != 0) return value;
    timespec now{};
    clock_gettime(CLOCK_REALTIME, &now);
    value = static_cast<uint64_t>(now.tv_nsec) ^ static_cast<uint64_t>(now.tv_sec) << 30 ^
            static_cast<uint64_t>(getpid()) << 40 ^ reinterpret_cast<uint64_t>(&value);
    return value * 0x9e3779b97f4a7c15ULL | 1;
}

uint64_t process_start_ticks() {
    char text[1024];
    if (read_file("/proc/self/stat", text, sizeof text) == 0) return 0;
    const char* field = std::strrchr(text, ')');  // the name may hold spaces and brackets
    for (int skipped = 2; field != nullptr && skipped < 22; ++skipped) {
        field = std::strchr(field + 1, ' ');
    }
    return field != nullptr ? std::strtoull(field + 1, nullptr, 10) : 0;
}

uint64_t pid_namespace() {
    struct stat info{};
    return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

void read_boot_id(uint8_t (&id)[16]) {
    char text[64];
    const size_t length = read_file("/proc/sys/kernel/random/boot_id", text, sizeof text);
    int nibbles = 0;
    for (size_t at = 0; at < length && nibbles < 32; ++at) {
        const int value = digit(text[at]);
        if (value < 0) continue;
        id[nibbles / 2] = static_cast<uint8_t>(id[nibbles / 2] << 4 | value);
        ++nibbles;
    }
}

void copy_environment(char* into, size_t bytes) {
    size_t used = 0;
    for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
        const size_t length = std::strlen(*entry) + 1;
        if (!allowed(*entry) || used + length + 1 > bytes) continue;
        std::memcpy(into + used, *entry, length);
        used += length;
    }
    into[used] = '\0';
}

void read_device(Communicator& comm) {
    comm.device = -1;
    std::memset(comm.bus_id, 0, sizeof comm.bus_id);
    std::memset(comm.uuid, 0, sizeof comm.uuid);
    if (!read_cuda(comm)) read_hip(comm);
    comm.bus_id[sizeof comm.bus_id - 1] = '\0';
}

uint32_t nccl_version(const void* caller) {
    Dl_info where{};
    void* library = nullptr;
    if (dladdr(caller, &where) != 0 && where.dli_fname != nullptr) {
        library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    int (*version_of)(int*) = nullptr;
    int version = 0;
    if (find(library != nullptr ? library : RTLD_DEFAULT, "ncclGetVersion", version_of)) {
        if (version_of(&version) != 0) version = 0;
    }
    if (library != nullptr) dlclose(library);
    return version > 0 ? static_cast<uint32_t>(version) : 0;
}

}  // namespace mycroft
