// SPDX-License-Identifier: GPL-2.0-only
/*
 * Measures how long threads wait from wake-up to running, between sched_waking
 * and sched_switch. Both are frequent, so the programs do as little as
 * possible.
 *
 * The scheduler's own note of when a thread came to run (sched_info) would make
 * the second program unnecessary, but is too early: a wake-up that preempts,
 * even the idle task, lets the next switch keep the run queue's clock
 * (rq_clock_skip_update), so leaving an idle state after its interrupt would
 * not be included.
 */
#include "kernel_types.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "trace.h"
#include "waiting.h"
#include "task.bpf.h"
#include "hist.bpf.h"

/* Whether anything is measured; user space writes it. */
volatile u32 enabled;
/* Start on CLOCK_MONOTONIC; user space writes it. Threads woken earlier could have run unseen. */
volatile u64 armed_ns;
/* One in 1 << burst_bits bursts of wake-ups is sampled; user space writes it. */
volatile u32 burst_bits;

/* log2 of the consecutive wake-ups in a burst, which are all sampled or not. */
#define BURST_SHIFT 8

struct wait {
	/* When the thread was woken; 0: it has run since, or the wake-up was not sampled. */
	u64 woken_ns;
};

/*
 * Freed with the thread, so that a reused TID starts afresh. Each member of a
 * process tree has one.
 */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wait);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct waits);
} waits SEC(".maps");

static __always_inline struct wait *wait_of(struct task_struct *p, u64 flags)
{
	return bpf_task_storage_get(&tasks, p, 0, flags);
}

static __always_inline struct waits *these_waits(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&waits, &zero);
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p)
{
	struct wait *wait = NULL;
	struct waits *sums;

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
	sums = these_waits();
	if (!sums || never_left(p))
		return 0;
	if ((sums->woken++ >> BURST_SHIFT) & ((1 << (burst_bits & 31)) - 1))
		return 0;
	if (!wait)
		wait = wait_of(p, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (wait)
		wait->woken_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct waits *sums;
	struct wait *wait;
	u64 woken, ns;

	if (!enabled || !next->pid)
		return 0;
	wait = wait_of(next, 0);
	if (!wait || !wait->woken_ns)
		return 0;
	woken = wait->woken_ns;
	wait->woken_ns = 0;
	sums = these_waits();
	if (!sums || woken < armed_ns)
		return 0;
	ns = bpf_ktime_get_ns() - woken;
	sums->latencies.count++;
	sums->latencies.total_ns += ns;
	sums->latencies.buckets[bucket_of(ns) & (HIST_BUCKETS - 1)]++;
	return 0;
}

/* A new thread inherits its parent's scope. Attached only if the scope is a process tree. */
SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child)
{
	if (wait_of(parent, 0) ||
	    (scope_kind == SCOPE_CHILDREN && parent->tgid == scope_pid && child->tgid != scope_pid))
		wait_of(child, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

/* Run once at the start if the scope is a process tree, for threads that exist already. */
SEC("iter/task")
int first_pass(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;

	if (p && descends(p))
		bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
