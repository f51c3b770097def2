/* SPDX-License-Identifier: GPL-2.0-only */
/* Maps and state shared by the programs, and how to count. */
#ifndef GLEANER_STATE_H
#define GLEANER_STATE_H

#include "hist.bpf.h"

/*
 * Threads and vCPUs are traced all the time, or in windows. User space opens
 * and closes windows, and attaches the programs that only run inside them. What
 * started before a window could have ended unseen.
 */
struct window {
	u64 start_ns;
	/* The window stands for this many times its own length; 0: closed. */
	u64 weight;
	/* The previous window. */
	u64 last_start_ns;
	u64 last_end_ns;
	u64 last_weight;
};

volatile struct window window SEC(".data.window");

/* The next free name. */
volatile u32 next_name = NAME_FIRST;

/* Unused: puts the enums, which no map or other variable has, in the BTF for user space. */
const volatile enum trace_format unused_format = HIST_SUB_BITS;
const volatile enum count_id unused_count = COUNT_SENT_RESCHEDULE;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HISTS);
	__type(key, u32);
	__type(value, struct hist);
} hists SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct counts);
} counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, MAX_NAMES);
	__type(key, u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, MAX_EDGES);
	__type(key, struct edge_key);
	__type(value, struct edge);
} edges SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_SPOTS);
	__type(key, struct spot);
	__type(value, struct code);
} spots SEC(".maps");

struct name {
	u64 words[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_NAMES);
	__type(key, struct name);
	__type(value, u32);
} names SEC(".maps");

/*
 * Per-thread state, in task storage: it is freed with the thread, so a reused
 * PID starts afresh and exits need no program.
 */
struct task_state {
	/* The name under which the thread is counted, and its number. */
	struct name comm;
	enum name_id name;
	/* Whether the thread is in the scope, if that is a process tree. */
	u32 member;
	/* An enum followed. */
	u32 followed;
	enum name_id waker;
	u32 waker_cpu;
	/* The kind of wait it blocked in. */
	enum hist_id wait;
	/*
	 * Start times of states; 0: not in this state. Times before the window
	 * are no longer valid.
	 */
	u64 woken_ns;
	u64 preempted_ns;
	u64 running_ns;
	u64 blocked_ns;
	/* Start of the stretch from a wake-up until it blocks, and CPU time since then. */
	u64 stretch_ns;
	u64 segment_ns;
};

/* Whether the thread was in the scope when last checked. */
enum followed {
	FOLLOWED_UNKNOWN,
	FOLLOWED_YES,
	FOLLOWED_NO,
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task_state);
} tasks SEC(".maps");

/* What a vCPU does and did. */
struct vcpu {
	/* When it last became idle, and stopped being idle: 0 before the first time. */
	u64 idle_since;
	u64 idle_until;
	/* Total idle time, in windows or not. */
	u64 poll_ns;
	u64 halt_ns;
	/* Time spent on the scope's threads; an estimate in windows. */
	u64 scope_ns;
	u64 spin_since;
	u64 shootdown_since;
	u32 idle_state;
	/* Time of the last tick. */
	u64 tick_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct vcpu);
} vcpus SEC(".maps");

static __always_inline struct vcpu *this_vcpu(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&vcpus, &zero);
}

/* Whether the time lies within the current window. */
static __always_inline bool within(u64 ns)
{
	return ns && ns >= window.start_ns;
}

static __always_inline void add_length(u32 id, u64 ns, u64 weight)
{
	struct hist *hist = bpf_map_lookup_elem(&hists, &id);

	if (!hist)
		return;
	hist->count += weight;
	hist->total_ns += ns * weight;
	hist->buckets[bucket_of(ns) & (HIST_BUCKETS - 1)] += weight;
}

static __always_inline struct counts *these_counts(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&counters, &zero);
}

static __always_inline void count_all(u32 what, u64 n)
{
	struct counts *counts = these_counts();

	if (counts)
		counts->all[what] += n;
}

static __always_inline void count_scope(u32 what, u64 n)
{
	struct counts *counts = these_counts();

	if (counts)
		counts->scope[what] += n;
}

/* The number of a thread's name. */
static __always_inline u32 number_of(struct name *name)
{
	u32 *known = bpf_map_lookup_elem(&names, name);
	u32 number;

	if (known)
		return *known;
	/* Checked first, so that the counter cannot overflow. */
	if (next_name >= MAX_NAMES)
		goto full;
	number = __sync_fetch_and_add(&next_name, 1);
	if (number >= MAX_NAMES)
		goto full;
	if (!bpf_map_update_elem(&names, name, &number, BPF_NOEXIST))
		return number;
	known = bpf_map_lookup_elem(&names, name);
	if (known)
		return *known;
full:
	count_all(COUNT_LOST_NAME, 1);
	return NAME_OTHER;
}

/* Updates the name, which a thread can change. */
static __always_inline void update_name(struct task_struct *p, struct task_state *t)
{
	struct name now;

	__builtin_memcpy(&now, p->comm, sizeof(now));
	if (t->name && now.words[0] == t->comm.words[0] && now.words[1] == t->comm.words[1])
		return;
	t->comm = now;
	t->name = number_of(&now);
}

static __always_inline struct task_state *state_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

static __always_inline struct task_state *new_state_of(struct task_struct *p)
{
	struct task_state *t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		count_all(COUNT_LOST_TASK, 1);
	return t;
}

#endif
