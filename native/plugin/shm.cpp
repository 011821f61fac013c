#include "shm.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "process.h"

namespace mycroft {
namespace {

constexpr uint64_t kFreeTimes = 4;  // so many times its size must be free: /dev/shm is NCCL's too
constexpr uint64_t kUsualBytes = 4 << 20;

uint32_t scaled(uint32_t usual, uint64_t bytes, uint32_t least, uint32_t most) {
    const uint64_t count = usual * bytes / kUsualBytes;
    return static_cast<uint32_t>(count < least ? least : count > most ? most : count);
}

Mapping failure(const char* what, int error) {
    Mapping mapping;
    mapping.failed = what;
    mapping.error = error;
    return mapping;
}

Mapping fill(int folder, const char* name, uint64_t bytes) {
    struct statvfs space{};
    if (fstatvfs(folder, &space) != 0) return failure("cannot see how much is free", errno);
    if (uint64_t{space.f_bavail} * space.f_frsize < kFreeTimes * bytes) {
        return failure("too little room: four times MYCROFT_SHM_BYTES must be free", 0);
    }
    const int file = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (file < 0) return failure("cannot create the file", errno);
    fchmod(file, 0644);  // whatever the umask: the collector is another user
    int error = EINTR;
    for (int attempt = 0; attempt < 100 && error == EINTR; ++attempt) {
        error = posix_fallocate(file, 0, static_cast<off_t>(bytes));
    }
    void* base = MAP_FAILED;
    if (error == 0) {
        base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        if (base == MAP_FAILED) error = errno;
    }
    close(file);
    if (base == MAP_FAILED) {
        unlinkat(folder, name, 0);
        return failure("cannot allocate the file", error);
    }
    Mapping mapping;
    mapping.base = base;
    return mapping;
}

}  // namespace

Tables divide(uint64_t bytes) {
    Tables tables{};
    const uint32_t strides[] = {sizeof(Communicator), sizeof(Stream), sizeof(Call),  sizeof(Operation),
                                sizeof(Flow),         sizeof(Pair),   sizeof(Record)};
    const uint32_t capacities[] = {
        scaled(256, bytes, 32, kMaxCommunicators), 128,
        scaled(2048, bytes, 256, 65536),           scaled(1024, bytes, 128, 65536),
        scaled(4096, bytes, 256, 65536),           scaled(16384, bytes, 1024, 1 << 20),
    };
    uint64_t offset = kHeaderBytes;
    for (int table = 0; table < static_cast<int>(Table::kCount); ++table) {
        tables.offset[table] = offset;
        tables.stride[table] = strides[table];
        tables.capacity[table] = table < static_cast<int>(Table::kRing)
                                     ? capacities[table]
                                     : static_cast<uint32_t>((bytes - offset) / strides[table]);
        offset += uint64_t{tables.stride[table]} * tables.capacity[table];
        offset = (offset + 63) & ~uint64_t{63};
    }
    return tables;
}

Mapping create_file(const char* dir, const char* name, uint64_t bytes) {
    if (mkdir(dir, 0777) == 0) {
        chmod(dir, 01777);  // other users' jobs put theirs beside ours
    } else if (errno != EEXIST) {
        return failure("cannot make the folder", errno);
    }
    const int folder = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder < 0) return failure("cannot open the folder", errno);
    const Mapping mapping = fill(folder, name, bytes);
    close(folder);
    return mapping;
}

}  // namespace mycroft
