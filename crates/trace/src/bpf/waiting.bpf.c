// SPDX-License-Identifier: GPL-2.0-only
/*
 * How long threads wait from their wake-up until they run, at the price of one
 * program per wake-up.
 *
 * A program at sched_switch would see when a thread runs, but there are twice
 * as many switches as wake-ups, and each of them pays for the way in and out.
 * None is needed: the scheduler notes in each thread when it was last put on a
 * vCPU (sched_info.last_arrival), and how often it was (pcount). So the
 * latency of a wake-up is read off the thread later: when it wakes another one,
 * since that one may preempt it, when it is woken next, or when user space
 * harvests. A thread that was put on a vCPU more than once meanwhile, since it
 * yielded or its slice was over, keeps the latency of its wake-up to itself; it
 * counts as woken.
 *
 * The scheduler's clock is not the clock that programs have. User space finds
 * the distance between the two (read_clock).
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "trace.h"
#include "waiting.h"
#include "task.bpf.h"
#include "hist.bpf.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sched_info {
	unsigned long pcount;
	u64 last_arrival;
};

/* The names behind ___ are for this file only: kernel_types.h has other fields of the same structures. */
struct task_struct___scheduled {
	struct sched_info sched_info;
};

struct sched_entity___queued {
	struct cfs_rq *cfs_rq;
};

struct cfs_rq {
	struct rq *rq;
};

struct rq {
	u64 clock;
};

#pragma clang attribute pop

/* Whether anything is measured; user space writes it. */
volatile u32 enabled;
/* Of 1 << burst_bits runs of BURST wake-ups one is sampled; user space writes it. */
volatile u32 burst_bits;
/* CLOCK_MONOTONIC less the scheduler's clock; user space writes it. */
volatile s64 clock_offset_ns;
/* The scheduler's clock when it was last read; user space reads it. */
volatile u64 clock_ns;

/* Wake-ups in a row that are sampled or not: a latency is only known if the thread's next wake-up is sampled, too. */
#define BURST_SHIFT 8

struct wait {
	/* When the thread was woken; 0: that is done with. */
	u64 woken_ns;
	/* How often it had been put on a vCPU by then. */
	u64 arrivals;
};

/* Ends with the thread, so that a TID that is used again finds nothing old. Of a process tree, each member has one. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wait);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, WAITS);
	__type(key, u32);
	__type(value, struct waits);
} waits SEC(".maps");

static __always_inline struct sched_info *info_of(struct task_struct *p)
{
	return &((struct task_struct___scheduled *)p)->sched_info;
}

static __always_inline struct wait *wait_of(struct task_struct *p, u64 flags)
{
	return bpf_task_storage_get(&tasks, p, 0, flags);
}

/* Counts the thread's latest wake-up, if the thread has run since. */
static __always_inline void harvest(struct task_struct *p, struct wait *wait, struct waits *sums)
{
	struct sched_info *info = info_of(p);
	u64 arrivals, arrival, woken, ns;

	if (!wait->woken_ns)
		return;
	arrivals = info->pcount - wait->arrivals;
	arrival = info->last_arrival + clock_offset_ns;
	/* Whoever takes it counts it: user space may harvest while the thread is woken. */
	if (!arrivals || !(woken = __sync_lock_test_and_set(&wait->woken_ns, 0)) || arrivals > 1)
		return;
	/* The distance of the clocks is known to a fraction of a microsecond. */
	ns = arrival > woken ? arrival - woken : 0;
	sums->latencies.count++;
	sums->latencies.total_ns += ns;
	sums->latencies.buckets[bucket_of(ns) & (HIST_BUCKETS - 1)]++;
}

static __always_inline void harvest_waker(struct waits *sums)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct wait *wait;

	/* From an idle vCPU it is an interrupt that wakes. */
	wait = waker->pid ? wait_of(waker, 0) : NULL;
	if (wait)
		harvest(waker, wait, sums);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	u32 id = WAITS_WAKING;
	struct waits *sums;
	struct wait *wait = NULL;

	if (!enabled)
		return 0;
	if (scope_kind == SCOPE_CGROUP) {
		if (!in_group(p))
			return 0;
	} else if (scope_kind != SCOPE_SYSTEM) {
		wait = wait_of(p, 0);
		if (!wait)
			return 0;
	}
	sums = bpf_map_lookup_elem(&waits, &id);
	if (!sums || never_left(p))
		return 0;
	if ((sums->woken++ >> BURST_SHIFT) & ((1 << (burst_bits & 31)) - 1))
		return 0;
	if (!wait)
		wait = wait_of(p, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!wait)
		return 0;
	harvest(p, wait, sums);
	harvest_waker(sums);
	wait->arrivals = info_of(p)->pcount;
	wait->woken_ns = bpf_ktime_get_ns();
	return 0;
}

/* A new thread belongs to where its parent belongs. Attached only where the scope is a process tree. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	if (wait_of(parent, 0) ||
	    (scope_kind == SCOPE_CHILDREN && parent->tgid == scope_pid && child->tgid != scope_pid))
		wait_of(child, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

/* Run once, at the start, where the scope is a process tree: the threads that are there already. */
SEC("iter/task")
int first_look(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (p && descends(p))
		bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

/* Run before user space reads: the wake-ups that no later one of the same thread has counted. */
SEC("iter/task")
int harvest_all(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	u32 id = WAITS_HARVEST;
	struct waits *sums;
	struct wait *wait;

	if (!p)
		return 0;
	wait = bpf_task_storage_get(&tasks, p, 0, 0);
	sums = bpf_map_lookup_elem(&waits, &id);
	if (wait && sums)
		harvest(p, wait, sums);
	return 0;
}

/*
 * User space runs this right after it asked for its thread's CPU time, which
 * brings the run queue's clock up to date (task_sched_runtime).
 */
SEC("syscall")
int read_clock(void *ctx)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct sched_entity___queued *entity;

	entity = (void *)p + bpf_core_field_offset(struct task_struct, se);
	clock_ns = BPF_CORE_READ(entity, cfs_rq, rq, clock);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
