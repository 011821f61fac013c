// A file that somebody truncates takes its pages out of our mapping: the next write is a SIGBUS that would
// end the training process. The handler puts private memory there instead and turns the plugin off. Any other
// SIGBUS goes to whoever had the signal before.
#include <signal.h>
#include <sys/mman.h>

#include "shm.h"

namespace mycroft {
namespace {

char* guarded = nullptr;
uint64_t guarded_bytes = 0;
void (*on_loss)() = nullptr;
struct sigaction previous;

void pass_on(int signal, siginfo_t* info, void* context) {
    const bool sent = info->si_code <= 0;  // by kill(), not by a fault
    if (previous.sa_flags & SA_SIGINFO) {
        previous.sa_sigaction(signal, info, context);
    } else if (previous.sa_handler == SIG_IGN && sent) {
        return;
    } else if (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN) {
        // A fault that is ignored would come back for ever: let it end the process, as it would have.
        struct sigaction standard{};
        standard.sa_handler = SIG_DFL;
        sigaction(SIGBUS, &standard, nullptr);
        raise(SIGBUS);
    } else {
        previous.sa_handler(signal);
    }
}

void handle(int signal, siginfo_t* info, void* context) {
    char* const where = static_cast<char*>(info->si_addr);
    const bool ours = info->si_code > 0 && where >= guarded && where < guarded + guarded_bytes;
    if (!ours) {
        pass_on(signal, info, context);
        return;
    }
    void* const fresh =
        mmap(guarded, guarded_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (fresh == MAP_FAILED) {
        pass_on(signal, info, context);
        return;
    }
    on_loss();
}

}  // namespace

void unguard() {
    guarded_bytes = 0;
}

void guard(void* base, uint64_t bytes, void (*lost)()) {
    guarded = static_cast<char*>(base);
    guarded_bytes = bytes;
    on_loss = lost;
    struct sigaction action{};
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, &previous);
}

}  // namespace mycroft
