/* SPDX-License-Identifier: GPL-2.0-only */
/* Maps and state that the programs share, and how they count. */
#ifndef GLEANER_STATE_H
#define GLEANER_STATE_H

#include "hist.bpf.h"

/*
 * When threads and vCPUs are followed: all the time, or in windows. User space
 * opens and closes them, and attaches and detaches the programs that only run
 * within. What began before the window began may have gone on unseen.
 */
struct window {
	u64 begin_ns;
	/* For how many times its own length the window stands; 0: it is closed. */
	u64 weight;
	/* The window before. */
	u64 last_begin_ns;
	u64 last_end_ns;
	u64 last_weight;
};

volatile struct window window SEC(".data.window");

/* The next free name; user space reads it. */
volatile u32 next_name = NAME_FIRST;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, HISTS);
	__type(key, u32);
	__type(value, struct hist);
} hists SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, IDLES);
	__type(key, u32);
	__type(value, struct hist);
} idles SEC(".maps");

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
	__type(key, u32);
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
 * A thread's state lives in the kernel's own record of it and ends with it: a
 * PID that is used again finds nothing old, and exits need no program.
 */
struct task_state {
	/* The name under which the thread is counted, and its number. */
	struct name comm;
	u32 name;
	/* Part of the scope, where that is a process tree. */
	u32 member;
	/* An enum followed. */
	u32 followed;
	u32 waker;
	u32 waker_cpu;
	/* In which kind of wait it blocked: an enum hist_id. */
	u32 wait;
	/* Times; 0: not in this state. What lies before the window is no longer known to be so. */
	u64 woken_ns;
	u64 preempted_ns;
	u64 running_ns;
	u64 blocked_ns;
	/* When the stretch from a wake-up until it blocks began, and what it has computed since. */
	u64 stretch_ns;
	u64 segment_ns;
};

/* Whether a thread was in the scope when that was last asked. */
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

/* What a vCPU does and did. User space reads it up to idle_state: see layout.rs. */
struct vcpu {
	/* When it became idle, and when it was no longer: 0 before the first time. */
	u64 idle_since;
	u64 idle_until;
	/* For how long in all, in windows or not. */
	u64 idle_ns[IDLES];
	/* For how long it ran the scope's threads; in windows an estimate. */
	u64 scope_ns;
	u64 spin_since;
	u64 shootdown_since;
	u32 idle_state;
	/* The last tick. */
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

/* Whether something was so at a moment within the present window. */
static __always_inline bool within(u64 ns)
{
	return ns && ns >= window.begin_ns;
}

static __always_inline void add_to(void *map, u32 id, u64 ns, u64 weight)
{
	struct hist *hist = bpf_map_lookup_elem(map, &id);

	if (!hist)
		return;
	hist->count += weight;
	hist->total_ns += ns * weight;
	hist->buckets[bucket_of(ns) & (HIST_BUCKETS - 1)] += weight;
}

static __always_inline void add_length(u32 id, u64 ns, u64 weight)
{
	add_to(&hists, id, ns, weight);
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
	/* Checked first, so that the counter cannot run over. */
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

/* Brings the name up to date: a thread may change it. */
static __always_inline void look_at_name(struct task_struct *p, struct task_state *t)
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
