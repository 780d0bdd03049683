#include "parallel.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#ifndef _WIN32
#include <unistd.h>
#endif
#ifdef __linux__
#include <sched.h>
#endif

namespace attn {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kPoll = std::chrono::milliseconds(50);

// Linux often wakes a thread on the processor of the thread that wakes it, where the two then take turns while another
// processor idles or spins for OpenMP: measured, calls below 2 ms gained nothing from a second thread.
struct Place {
#ifdef __linux__
    int processor = sched_getcpu();
    cpu_set_t allowed;
    Place() {
        if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) CPU_ZERO(&allowed);
    }
    void leave() const {
        cpu_set_t others = allowed;
        if (processor < 0 || sched_getcpu() != processor) return;
        CPU_CLR(processor, &others);
        if (CPU_COUNT(&others) > 0) sched_setaffinity(0, sizeof others, &others);
    }
#else
    void leave() const {}
#endif
};

struct Job {
    Job(const std::function<void(int64_t)>& what, int64_t count, int helpers) : body(what), items(count), wanted(helpers) {}

    const std::function<void(int64_t)>& body;
    const int64_t items;
    const Place caller;
    int wanted;       // helpers that may still join
    int working = 0;  // helpers inside
    std::atomic<int64_t> next{0};
    std::atomic<bool> stop{false};
    std::exception_ptr error;
    std::condition_variable idle;

    bool step() {
        if (stop.load(std::memory_order_relaxed)) return false;
        const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
        if (item >= items) return false;
        body(item);
        return true;
    }
};

// Threads that wait for jobs. Never destroyed: at exit the system ends threads that only wait.
class Pool {
public:
    void offer(Job& job) {
        std::lock_guard<std::mutex> lock(mutex_);
        hire(job.wanted);
        jobs_.push_back(&job);
        for (int i = 0; i < job.wanted; ++i) wake_.notify_one();
    }

    // Takes the job back and waits until nobody works on it; asks `interrupted` meanwhile.
    void finish(Job& job, const std::function<bool()>& interrupted, bool& stopped) {
        std::unique_lock<std::mutex> lock(mutex_);
        jobs_.remove(&job);
        while (!job.idle.wait_for(lock, kPoll, [&] { return job.working == 0; })) {
            lock.unlock();
            if (!stopped && interrupted()) job.stop = stopped = true;
            lock.lock();
        }
    }

private:
    // A system that gives no more threads leaves the work to those there are, the caller at least.
    void hire(int wanted) {
        try {
            for (; threads_ < wanted; ++threads_) std::thread([this] { serve(); }).detach();
        } catch (const std::system_error&) {
        }
    }

    void serve() {
        std::unique_lock<std::mutex> lock(mutex_);
        for (;;) {
            wake_.wait(lock, [this] { return !jobs_.empty(); });
            Job& job = *jobs_.front();
            ++job.working;
            if (--job.wanted == 0) jobs_.pop_front();
            lock.unlock();
            std::exception_ptr error;
            job.caller.leave();
            try {
                while (job.step()) {
                }
            } catch (...) {
                error = std::current_exception();
                job.stop = true;
            }
            lock.lock();
            if (error) job.error = error;
            if (--job.working == 0) job.idle.notify_one();
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::list<Job*> jobs_;
    int threads_ = 0;
};

// A forked child has none of its parent's threads, so it gets a pool of its own.
Pool& pool() {
    static std::mutex mutex;
    static Pool* instance = nullptr;
    static long owner = 0;
#ifdef _WIN32
    const long self = 1;
#else
    const long self = static_cast<long>(getpid());
#endif
    std::lock_guard<std::mutex> lock(mutex);
    if (owner != self) {
        instance = new Pool;
        owner = self;
    }
    return *instance;
}

struct Buffer {
    float* data = nullptr;
    int64_t floats = 0;
    void release() {
        ::operator delete(data, std::align_val_t(64));
        data = nullptr;
        floats = 0;
    }
    ~Buffer() { release(); }
};

constexpr int64_t kKeptFloats = 1 << 20;

}  // namespace

bool parallel_for(int threads, int64_t items, const std::function<void(int64_t)>& body,
                  const std::function<bool()>& interrupted) {
    const int helpers = static_cast<int>(std::min<int64_t>(threads, items)) - 1;
    Job job(body, items, helpers);
    if (helpers > 0) pool().offer(job);
    bool stopped = false;
    std::exception_ptr error;
    auto asked = Clock::now();
    try {
        while (job.step()) {
            const auto now = Clock::now();
            if (now - asked < kPoll) continue;
            asked = now;
            if (interrupted()) job.stop = stopped = true;
        }
    } catch (...) {
        error = std::current_exception();
        job.stop = true;
    }
    if (helpers > 0) pool().finish(job, interrupted, stopped);
    if (!error) error = job.error;
    if (error) std::rethrow_exception(error);
    return !stopped;
}

float* scratch(int64_t floats) {
    thread_local Buffer buffer;
    if (buffer.floats >= floats && (buffer.floats <= kKeptFloats || floats > kKeptFloats)) return buffer.data;
    buffer.release();
    buffer.data = static_cast<float*>(::operator new(static_cast<size_t>(floats) * sizeof(float), std::align_val_t(64)));
    buffer.floats = floats;
    return buffer.data;
}

}  // namespace attn
