// The shared-memory file of one traced process, layout version 1.
//
//   DIR/<pid>-<start ticks>-<nonce>.mycroft      names in decimal, decimal, 16 hex digits
//
//   0        Header                              one struct, kHeaderBytes
//   …        Communicator × capacity             offset, stride, capacity and `used` of every table are in
//            Stream       × capacity             the header (header.tables[Table::…]): a reader follows those
//            Call         × capacity             and refuses what lies outside the file or is smaller than
//            Operation    × capacity             the fields it knows
//            Flow         × capacity
//            Pair         × capacity
//            Record       × capacity             the ring of finished operations and flows
//
// All fields are little-endian, fixed in width, naturally aligned; nothing is a pointer. Fields are only
// appended (into reserved bytes, or by a larger stride) within a version. Zero means "not known" or "not
// yet" wherever a field does not say otherwise. Times are ticks of header.clock_source: convert with
// header.anchor (below). Func, datatype, algo, proto, visibility, direction and operation flags have the
// codes of schemas/enums.py.
//
// Who writes: only the traced process, but for Header::requested_tier. Who reads: the host's collector, with
// pread, trusting nothing: any bytes may stand anywhere.
//
// Reading a slot
//   Every slot has a generation: it changes whenever the slot changes hands. Words never tear; a slot does.
//   A copy is consistent if two successive reads of it are equal byte for byte (and it is not being written:
//   Operation state kWriting, odd generation elsewhere). Generations start at random numbers, so that another
//   process's handles do not validate. A slot that keeps changing is moving, so its
//   counters may be taken as they are: each is monotone, and two of them are at most one step apart.
//
// What "has it moved" takes: compare counters of two samples. Flow::calls changes at every callback on the
// flow, repeats included; Communicator::proxy_calls at every ProxyCtrl callback.
//
// Life of an operation (Operation::control)
//   kOpen at Coll or P2p start. Its stop means "enqueued": kEnqueued is set, nothing has ended.
//   The PLUGIN ends it (kEnded, end_reason kByFlows or kByKernels) when it is enqueued and every flow that it
//   started is finished and, where kernel channels were traced when it was launched, all of its
//   kernels_expected have stopped. A record goes to the ring at that moment, and the state is kEnded once it
//   is there. If more of it shows up later (a flow starts, takes its first step or finishes) it reopens, and
//   a second record with the whole truth, amended = 1, replaces the first. An operation that has nothing to
//   show (no flow that moved, no kernel) is never ended by its own events. The plugin retires it, one record,
//   end_tick 0:
//     kBySuccessor   a later operation of the same stream or communicator was moved by its GPU
//                    (stream.moved_base or communicator.moved_base > operation.order): it has ended, we
//                    cannot say when. Noticed lazily, a few slots at each later launch. The COLLECTOR
//                    should apply the same comparison at once and not wait for the record.
//     kRecycled      its slot was needed: whether it has ended is not known. The COLLECTOR decides
//                    by its rules (later ones that moved, other members); the plugin never does.
//     kFinalised     its communicator was finalised while nothing of it had visibly started.
//     kAborted       its communicator was finalised with flows or kernels of it unfinished.
//   Slots are handed out in a circle; the slot of an ended operation stays readable until its turn comes.
//   A process that dies leaves everything as it was: operations kOpen then are orphans, and ring records
//   that were not drained are still to be drained.
//   Positions do not depend on slots: Communicator::launched, Pair::count and last_order are exact whatever
//   was recycled or dropped.
//
// Life of a flow
//   kFlowOpen at ProxyOp start, kFlowFinished when its last step stops (or at ProxyOp stop, should that
//   come without); then a record goes to the ring, the slot is freed and may be handed out at once.
//   With PXN the flow lies in the file of the process that carries it: flags has kFlowForeign, and
//   `parent`, `context`, `rank`, `owner_pid` are what the owner's process had. To find the operation look,
//   among the host's files, for the one whose nonce_tag equals handle_nonce(parent), and there for the
//   Operation (or ring record) whose `handle` equals `parent`, and the Communicator whose `context`
//   equals `context`.
//
// Ring
//   header.ring_next is the number of records ever reserved. Record i lies in slot i % capacity. Its
//   `sequence` is 2i + 1 while it is being written and 2i + 2 when complete. A reader with cursor i reads the
//   slot twice: 2i + 2 and equal copies: take it. Larger: overwritten, i was lost; count it, resume at
//   ring_next - capacity. Smaller or odd: not ready; if later records are ready wait one sample, then count
//   it as lost (its writer died or gave way: drops[kDropRing]). kDropRing counts records the plugin gave up.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cell.h"

namespace mycroft {

constexpr uint64_t kMagic = 0x31544643524d594dULL;  // the bytes "MYMRCFT1"
constexpr uint32_t kLayoutVersion = 1;
constexpr uint32_t kHeaderBytes = 12288;
constexpr uint32_t kNone = 0xffffffffU;  // no slot
constexpr int kFuncs = 16;               // func codes 0..14 have their own counter, all others share 15

// What the process as a whole does. Header::state.
enum State : uint32_t {
    kStarting = 0,  // the rest of the file may not be valid yet
    kOn = 1,
    kOff = 2,  // turned itself off; Header::off_reason says why
};

enum OffReason : uint32_t {
    kNotOff = 0,
    kOffTruncated = 1,  // somebody shortened the file
    kOffForked = 2,     // never seen in a file: the child has none
};

// Header::requested_tier and applied_tier.
enum Tier : uint32_t {
    kTierOps = 0,
    kTierFlows = 1,
    kTierKernel = 2,
    kTierIdle = 3,  // one event per launch, so that a later request is noticed
};

enum ClockSource : uint32_t {
    kClockMonotonic = 0,  // CLOCK_MONOTONIC, ns
    kClockTsc = 1,        // x86-64 time stamp counter
    kClockCntvct = 2,     // aarch64 virtual counter
};

enum class Table : uint32_t {
    kCommunicators,
    kStreams,
    kCalls,
    kOperations,
    kFlows,
    kPairs,
    kRing,
    kCount,
};

// Header::drops: what was lost, or refused, and why.
enum Drop : uint32_t {
    kDropCommunicator = 0,  // table full: a communicator is not traced
    kDropCall = 1,          // table full: the oldest call gave way
    kDropOperation = 2,     // table full: an operation is not traced (its position is)
    kDropFlow = 3,          // table full: a flow is not traced
    kDropRing = 4,          // a record gave way to another writer of its slot
    kDropPair = 5,          // table full: a send or receive has no number (seq 0)
    kDropStream = 6,        // table full: no successor rule for that stream (not a loss)
    kDropStep = 7,          // more open steps than a flow's window holds
    // From here: refused, not lost.
    kRefusedContext = 8,  // context NULL, stale or not ours
    kRefusedHandle = 9,   // handle stale, stopped twice, or not ours
    kRefusedParent = 10,  // a step, kernel channel without a live parent
    kRefusedKernel = 11,  // kernel times that cannot be
    kAmended = 12,        // operations that reopened after their record (not a loss)
    kDropKinds = 16,
};

struct TableInfo {
    uint64_t offset;
    uint32_t stride;
    uint32_t capacity;
    Cell<uint32_t> used;  // slots from this one on have never been touched: no need to read them
    uint32_t reserved;
};

// The same instant by three clocks. Two of them give the tick rate:
//   rate = (now.ticks - start.ticks) / (now.monotonic_ns - start.monotonic_ns)      ticks per ns
// once they are a second apart; before that tick_hz is good to some 0.01 %. A tick then is
// now.monotonic_ns + (tick - now.ticks) / rate on CLOCK_MONOTONIC of the process's time namespace.
struct Anchor {
    Cell<uint32_t> version;  // odd while being written
    uint32_t reserved;
    Cell<uint64_t> ticks;
    Cell<int64_t> monotonic_ns;
    Cell<int64_t> wall_ns;  // since the Unix epoch
};

struct Header {
    // 0: identity, written once
    uint64_t magic;  // written last
    uint32_t layout_version;
    uint32_t header_bytes;
    uint64_t file_bytes;
    uint64_t nonce;          // random, of this process; also in the file's name
    uint32_t nonce_tag;      // 20 bits of it, in every handle: handle_nonce()
    uint32_t pid;            // in the process's own PID namespace
    uint64_t start_ticks;    // field 22 of /proc/self/stat: with pid, the process instance
    uint64_t pid_namespace;  // inode of /proc/self/ns/pid, 0 where not readable
    uint8_t boot_id[16];     // /proc/sys/kernel/random/boot_id
    uint32_t uid;
    uint32_t plugin_version;  // 0xMMmmpp
    uint32_t clock_source;
    Cell<uint32_t> nccl_version;  // as ncclGetVersion says, 0 unknown
    uint64_t tick_hz;             // estimate at start
    uint8_t reserved0[32];

    // 128
    Anchor start_anchor;  // taken when the file was made
    Anchor anchor;        // taken again about each second while there are launches
    TableInfo tables[static_cast<int>(Table::kCount)];
    uint8_t reserved1[24];

    // 384: written by tools; read in callbacks. kTier…; anything else is ignored.
    alignas(64) Cell<uint32_t> requested_tier;
    Cell<uint32_t> applied_tier;
    Cell<uint32_t> kernel_allowed;  // 0: this NCCL is not in the table of versions where kernel is safe
    Cell<uint32_t> state;
    Cell<uint32_t> off_reason;
    Cell<uint32_t> chained;  // 1: another profiler plugin is loaded behind this one

    // 448: written at launches
    alignas(64) Cell<uint64_t> order;  // last number given to a group, an operation (Operation::order, base)
    Cell<uint64_t> launches;           // Coll, P2p and CeColl starts, dropped ones too
    Cell<uint64_t> last_launch_tick;
    Cell<uint64_t> group_calls;  // GroupApi starts: ids of group calls

    // 512: highest order whose GPU has shown progress
    alignas(64) Cell<uint64_t> moved_order;
    Cell<uint64_t> moved_tick;

    // 576: ring and callbacks
    alignas(64) Cell<uint64_t> ring_next;
    // Callbacks but those of flows still open: add Flow::calls of open flows and Communicator::proxy_calls.
    Cell<uint64_t> callbacks;

    // 640
    alignas(64) Cell<uint64_t> drops[kDropKinds];

    // 768: KEY=VALUE, NUL-separated, ended by an empty one: an allow-list of environment variables
    alignas(64) char environment[8192];
    // 8960
    char job[256];  // MYCROFT_JOB, NUL-terminated
    uint8_t reserved2[3072];
};

enum CommunicatorState : uint32_t { kCommFree = 0, kCommOpen = 1, kCommFinalised = 2, kCommAborted = 3 };

// One init call. A slot is handed out again only when no free one is left; it stays readable until then.
struct Communicator {
    // 0: written at init
    Cell<uint32_t> generation;  // odd while being written
    Cell<uint32_t> state;       // CommunicatorState; aborted: finalised with work visibly unfinished
    Cell<uint64_t> comm_id;     // commId or commHash; v3: known from the first operation on
    uint64_t context;           // the value that NCCL holds: in Flow::context, of other processes too
    uint32_t nranks;            // 0: not known (v3)
    uint32_t nnodes;
    Cell<int32_t> rank;  // -1: not known (v3, before the first operation)
    uint32_t api;        // profiler API version 3..7
    uint64_t opened_tick;
    Cell<uint64_t> closed_tick;
    uint8_t reserved0[8];
    // 64
    char name[64];  // NUL-terminated, cut
    // 128: the device current at init
    int32_t device;  // -1: not known
    uint32_t reserved1;
    char bus_id[24];  // "0000:3b:00.0"
    uint8_t uuid[16];
    uint32_t nccl_version;
    uint32_t kernel_tier;  // 1: kernel channels may be traced for this communicator
    uint8_t reserved2[8];
    // 192: position; exact whatever happened to the slots
    Cell<uint64_t> last_order;   // Operation::order of the last launch
    Cell<uint64_t> moved_base;   // an operation of this communicator with order < this has ended
    Cell<uint64_t> moved_tick;   // when that was last raised
    Cell<uint64_t> launches;     // operations started
    Cell<uint64_t> ended_count;  // operations that the plugin saw end (by flows or kernels)
    Cell<uint64_t> last_launch_tick;
    uint8_t reserved3[16];
    // 256: per func code. Collectives: last seq launched (NCCL's seqNumber + 1). Sends and receives: how
    // many.
    Cell<uint64_t> launched[kFuncs];
    // 384: highest seq that the plugin saw end; sends and receives: how many
    Cell<uint64_t> ended[kFuncs];
    // 512: CollApi or P2pApi calls not captured in a graph (v5 and later): called - launched are still queued
    Cell<uint64_t> called[kFuncs];
    // 640: the same, captured
    Cell<uint64_t> captured[kFuncs];
    // 768: the proxy progress thread, as seen with this communicator's context
    alignas(64) Cell<uint64_t> proxy_calls;
    Cell<uint64_t> proxy_tick;   // start of the ProxyCtrl state below
    Cell<uint32_t> proxy_state;  // 13 Idle, 14 Active, 15 Sleep, 16 Wakeup, 17 Append, 18 AppendEnd
    uint32_t reserved4;
    Cell<uint64_t> proxy_appended;
    uint8_t reserved5[32];
};

// A stream that had a launch. Never freed.
struct Stream {
    Cell<uint64_t> stream;      // pointer as NCCL gave it; 0: unused slot (the default stream is slot 0)
    Cell<uint64_t> last_order;  // last launch on it
    Cell<uint64_t> moved_base;  // an operation of this stream with order < this has ended
    Cell<uint64_t> moved_tick;
    Cell<uint64_t> launches;
    uint8_t reserved[24];
};

enum CallKind : uint8_t { kCallGroupApi = 1, kCallCollApi = 2, kCallP2pApi = 3, kCallGroup = 4 };

// GroupApi: what the host does inside the call.
enum CallStage : uint8_t {
    kStageEntered = 0,
    kStageInGroup = 1,    // ncclGroupStart has returned: the caller collects operations
    kStageGroupEnd = 2,   // in ncclGroupEnd
    kStageLaunching = 3,  // in a kernel launch
    kStageLaunched = 4,
};

// An API call or launch group, open from `entered` until `left` is set: an open one is where the host is.
struct Call {
    Cell<uint32_t> generation;     // odd while being written
    Cell<uint32_t> comm;           // Communicator slot
    Cell<uint8_t> kind;            // CallKind, 0: never used
    Cell<uint8_t> func;            // GroupApi: of its last call
    Cell<uint8_t> stage;           // CallStage
    Cell<uint8_t> captured;        // 1: in a graph
    Cell<uint8_t> explicit_group;  // 1: between the caller's own ncclGroupStart and ncclGroupEnd
    Cell<uint8_t> datatype;
    uint8_t reserved[2];
    Cell<uint64_t> group;  // id of the GroupApi call it is (in); for kCallGroup its order
    Cell<uint64_t> stream;
    Cell<uint64_t> count;    // GroupApi: calls in it
    Cell<uint64_t> entered;  // tick
    Cell<uint64_t> left;     // tick, 0 while open
    Cell<uint32_t> parent;   // Call slot of its GroupApi, kNone
    Cell<uint32_t> parent_generation;
};

// Operation::control: generation << 40 | state << 32 | flows open << 16 | marks << 8 | kernel channels open
enum OperationState : uint8_t {
    kFree = 0,
    kWriting = 1,
    kOpen = 2,
    kEnded = 3,
    kStateMask = 0x7f,
    kEnqueued = 0x80,
};

enum OperationMark : uint8_t {
    kStepped = 1,  // one of its flows has had a step
    kEnding = 2,   // its end is being written, by one thread; kOpen until the record is in the ring
    kTouched = 4,  // with kEnding: something of it began or finished meanwhile
};

enum EndReason : uint8_t {
    kNotEnded = 0,
    kByFlows = 1,
    kByKernels = 2,
    kBySuccessor = 3,
    kRecycled = 4,
    kFinalised = 5,
    kAborted = 6,
};

// Operation::visibility
enum Visible : uint8_t { kLaunch = 1, kKernel = 2, kFlows = 3 };

struct Operation {
    Cell<uint64_t> control;
    Cell<uint64_t> handle;  // what NCCL holds; with PXN it turns up as Flow::parent in another process
    Cell<uint64_t> seq;     // from 1; collectives: NCCL's seqNumber + 1, per communicator and func; sends and
                            // receives: per communicator, peer and direction; 0 not known
    Cell<uint64_t> order;   // launch order of the process, over all communicators and streams
    Cell<uint64_t> base;    // order at the start of its kernel launch: those of one launch run together
    Cell<uint64_t> group;   // id of the explicit group call, 0 outside one
    Cell<uint64_t> stream;
    Cell<uint64_t> count;  // with `datatype` as given to the call (v5 and later), else as NCCL launched it
    // 64
    Cell<uint32_t> comm;  // Communicator slot
    Cell<uint32_t> comm_generation;
    Cell<int32_t> peer;  // root of a rooted collective, peer of a send or receive, else -1
    Cell<uint32_t> flags;
    Cell<uint8_t> func;
    Cell<uint8_t> datatype;
    Cell<uint8_t> algo;
    Cell<uint8_t> proto;
    Cell<uint8_t> channels;
    Cell<uint8_t> visibility;  // launch, kernel once a kernel channel started, flows once a flow started
    Cell<uint8_t> end_reason;
    Cell<uint8_t> amended;
    Cell<uint32_t> stream_slot;       // Stream slot, kNone
    Cell<uint32_t> kernels_expected;  // 0: kernel channels were not traced when it was launched
    Cell<uint64_t> bytes;             // count × size of the datatype, as NCCL launched it
    Cell<uint64_t> api_tick;          // API call entered (v5 and later)
    Cell<uint64_t> launch_tick;       // Coll or P2p start
    Cell<uint64_t> enqueued_tick;     // Coll or P2p stop
    // 128
    Cell<uint64_t> first_tick;       // first step or kernel channel started
    Cell<uint64_t> moved_tick;       // first sign of its GPU
    Cell<uint64_t> last_tick;        // last flow or kernel channel finished
    Cell<uint64_t> end_tick;         // kByFlows, kByKernels: the same, when it ended; else 0
    Cell<uint64_t> kernel_start_ns;  // earliest and latest GPU timer, ns since the Unix epoch; 0 unknown
    Cell<uint64_t> kernel_end_ns;
    Cell<uint64_t> kernel_start_tick;  // when the callbacks came: tens of ms later than the GPU at times
    Cell<uint64_t> kernel_end_tick;
    // 192
    Cell<uint64_t> kernels_started;  // bit per channel 0..63
    Cell<uint64_t> kernels_stopped;
    Cell<uint32_t> flows_started;
    Cell<uint32_t> flows_finished;
    Cell<uint64_t> user_tag;  // v7
    uint8_t reserved[32];
};

enum FlowState : uint8_t { kFlowFree = 0, kFlowOpen = 1, kFlowFinished = 2 };

enum FlowFlag : uint32_t {
    kNoFlag = 0,
    kFlowForeign = 1,     // PXN: owner is another process
    kFlowInProgress = 2,  // the proxy has begun to work on it (else it is queued)
    kFlowUnowned = 4,     // ours, but its operation is not known
    kFlowCut = 8,         // ProxyOp stopped before its last step
};

// State of one step. Sender: started, waits for the GPU to fill it, for credit, for the network. Receiver:
// started, waits for data, for the flush, for the GPU to take it.
enum StepState : uint8_t {
    kStepClosed = 0,
    kStepStarted = 1,
    kSendGpu = 2,
    kSendCredit = 3,
    kSendNet = 4,
    kRecvNet = 5,
    kRecvFlush = 6,
    kRecvGpu = 7,
};

// Flow::counters of a sender and of a receiver.
enum SendCounter : uint8_t { kReady = 0, kTransmitted = 1, kDone = 2 };
enum RecvCounter : uint8_t { kPosted = 0, kReceived = 1, kFlushed = 2, kConsumed = 3 };

// Flow::time: head-of-line time by what the oldest open step waits for. The time of the state that it is in
// is not included: add (now - since) to head_time(direction, head_state). A wait for credit, or to post, that
// ended at the first attempt counts as network time (it saves a clock read).
enum HeadTime : uint8_t {
    kTimeGpu = 0,     // sender: to fill; receiver: to take
    kTimeCredit = 1,  // sender: for the peer's credit; receiver: for irecv to be accepted
    kTimeNet = 2,
    kTimeFlush = 3,
};

constexpr HeadTime head_time(uint8_t direction, uint8_t step_state) {
    switch (step_state) {
        case kSendCredit:
            return kTimeCredit;
        case kSendNet:
        case kRecvNet:
            return kTimeNet;
        case kRecvFlush:
            return kTimeFlush;
        case kStepStarted:
            return direction == 1 ? kTimeGpu : kTimeCredit;
        default:
            return kTimeGpu;
    }
}

constexpr int kWindow = 16;  // open steps that a flow can follow; NCCL has at most 8

struct Flow {
    Cell<uint32_t> generation;  // odd while being written
    Cell<uint8_t> state;        // FlowState
    Cell<uint8_t> direction;    // 1 send, 2 receive
    Cell<uint8_t> channel;
    Cell<uint8_t> head_state;  // StepState of the oldest open step, 0: none is open
    Cell<uint32_t> head;       // number of that step
    Cell<uint32_t> total;      // steps of the flow
    Cell<uint32_t> counters[4];
    Cell<uint16_t> window[kWindow];  // step s at s % 16: (s & 0xff) << 8 | repeated << 7 | StepState
    // 64
    Cell<uint64_t> since;      // tick since which the head is in head_state; the last timed progress
    Cell<uint64_t> time[4];    // ticks, HeadTime
    Cell<uint64_t> bytes;      // carried so far: sender at SendWait, receiver at RecvFlushWait
    Cell<uint64_t> no_credit;  // repeats of SendPeerWait
    Cell<uint64_t> calls;      // callbacks on this flow
    // 128
    Cell<uint64_t> parent;   // Operation::handle, as NCCL gave it
    Cell<uint64_t> context;  // Communicator::context, as NCCL gave it
    Cell<uint32_t> op;       // Operation slot of this file, kNone
    Cell<uint32_t> op_generation;
    Cell<uint32_t> comm;  // Communicator slot of this file, kNone for a foreign one
    Cell<uint32_t> comm_generation;
    Cell<int32_t> peer;
    Cell<int32_t> rank;        // of the owner
    Cell<uint32_t> owner_pid;  // in the owner's PID namespace
    Cell<uint32_t> flags;      // FlowFlag
    Cell<int32_t> chunk;       // chunkSize
    Cell<uint32_t> next_free;  // private to the plugin
    Cell<uint64_t> seq;        // copied from the operation, which may be gone when the flow ends
    // 192
    Cell<uint64_t> order;
    Cell<uint64_t> launch_tick;
    Cell<uint64_t> start_tick;       // ProxyOp start: queued
    Cell<uint64_t> first_tick;       // first step started
    Cell<uint64_t> first_data_tick;  // sender: first step ready; receiver: first step received
    Cell<uint64_t> end_tick;
    Cell<uint8_t> func;
    Cell<uint8_t> counted;  // private to the plugin
    uint8_t reserved[14];
};

// Sends and receives are numbered per (communicator, peer, direction): the position of each pair.
struct Pair {
    // ((comm_generation >> 1 & 0x7fff) + 1) << 48 | comm slot << 36 | direction << 32 | peer; 0 unused, all
    // ones while it changes hands
    Cell<uint64_t> key;
    Cell<uint64_t> count;
};

enum RecordKind : uint32_t { kRecordOperation = 1, kRecordFlow = 2 };

struct Record {
    Cell<uint64_t> sequence;
    Cell<uint32_t> kind;  // RecordKind
    Cell<uint32_t> slot;  // where it lay
    uint8_t reserved[16];
    Cell<uint64_t> body[32];  // an Operation or a Flow as it was at its end
};

// Handles and contexts are integers: kind 4 bits, nonce 20, slot 16, then generation 24, or generation 16
// and a step or channel number 8.
enum HandleKind : uint64_t {
    kContextHandle = 1,
    kCallHandle = 2,
    kLaunchHandle = 3,
    kOperationHandle = 4,
    kFlowHandle = 5,
    kStepHandle = 6,
    kKernelHandle = 7,
    kControlHandle = 8,
    kChainHandle = 9,
};

constexpr uint32_t handle_nonce(uint64_t handle) {
    return static_cast<uint32_t>(handle >> 40) & 0xfffff;
}
constexpr uint32_t handle_slot(uint64_t handle) {
    return static_cast<uint32_t>(handle >> 24) & 0xffff;
}

static_assert(sizeof(Header) == kHeaderBytes, "layout");
static_assert(offsetof(Header, start_anchor) == 128 && offsetof(Header, tables) == 192, "layout");
static_assert(offsetof(Header, requested_tier) == 384 && offsetof(Header, order) == 448, "layout");
static_assert(offsetof(Header, drops) == 640 && offsetof(Header, environment) == 768, "layout");
static_assert(offsetof(Header, job) == 8960, "layout");
static_assert(sizeof(TableInfo) == 24 && sizeof(Anchor) == 32, "layout");
static_assert(sizeof(Communicator) == 832 && offsetof(Communicator, launched) == 256, "layout");
static_assert(offsetof(Communicator, proxy_calls) == 768, "layout");
static_assert(sizeof(Stream) == 64 && sizeof(Call) == 64 && sizeof(Pair) == 16, "layout");
static_assert(sizeof(Operation) == 256 && offsetof(Operation, comm) == 64, "layout");
static_assert(offsetof(Operation, first_tick) == 128 && offsetof(Operation, kernels_started) == 192,
              "layout");
static_assert(sizeof(Flow) == 256 && offsetof(Flow, since) == 64, "layout");
static_assert(offsetof(Flow, parent) == 128 && offsetof(Flow, order) == 192, "layout");
static_assert(sizeof(Record) == 288, "layout");

}  // namespace mycroft
