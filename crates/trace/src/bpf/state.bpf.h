/* SPDX-License-Identifier: GPL-2.0-only */
/* Maps and state that the programs share, and how they count. */
#ifndef GLEANER_STATE_H
#define GLEANER_STATE_H

/* One event in 1 << sample_shift is followed, and counts for all of them. User space writes it. */
volatile u32 sample_shift;

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
	/*
	 * What is being followed: from a wake-up until the thread blocks again.
	 * 0: nothing; else for how many such stretches this one counts.
	 */
	u32 weight;
	/* The same of the wake-up that it is on its way from. */
	u32 woken_weight;
	/* The same of the stretch that ended when it blocked. */
	u32 blocked_weight;
	u32 waker;
	u32 waker_cpu;
	/* In which kind of wait it blocked: an enum hist_id. */
	u32 wait;
	/* Times; 0: not in this state. */
	u64 woken_ns;
	u64 preempted_ns;
	u64 running_ns;
	u64 blocked_ns;
	/* Computed since the wake-up. */
	u64 segment_ns;
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
	/* For how long in all, sampled or not. */
	u64 idle_ns[IDLES];
	/* For how long it ran the scope's threads; where events are sampled, an estimate. */
	u64 scope_ns;
	u64 spin_since;
	u64 shootdown_since;
	u32 idle_state;
	/* For how many idle periods, contended locks and shootdowns these count; 0: not looked at. */
	u32 idle_weight;
	u32 spin_weight;
	u32 shootdown_weight;
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

static __always_inline u32 log2_of(u64 v)
{
	u32 r = 0;

	if (v >> 32) {
		v >>= 32;
		r += 32;
	}
	if (v >> 16) {
		v >>= 16;
		r += 16;
	}
	if (v >> 8) {
		v >>= 8;
		r += 8;
	}
	if (v >> 4) {
		v >>= 4;
		r += 4;
	}
	if (v >> 2) {
		v >>= 2;
		r += 2;
	}
	return r + (v >> 1);
}

static __always_inline u32 bucket_of(u64 ns)
{
	u32 power, bucket;

	if (ns < (1 << HIST_SUB_BITS))
		return ns;
	power = log2_of(ns);
	bucket = ((power - HIST_SUB_BITS + 1) << HIST_SUB_BITS) +
		 ((ns >> (power - HIST_SUB_BITS)) & ((1 << HIST_SUB_BITS) - 1));
	return bucket < HIST_BUCKETS ? bucket : HIST_BUCKETS - 1;
}

static __always_inline void add_to(struct hist *hist, u64 ns, u64 weight)
{
	hist->count += weight;
	hist->total_ns += ns * weight;
	hist->buckets[bucket_of(ns) & (HIST_BUCKETS - 1)] += weight;
}

static __always_inline void add_length(u32 id, u64 ns, u64 weight)
{
	struct hist *hist = bpf_map_lookup_elem(&hists, &id);

	if (hist)
		add_to(hist, ns, weight);
}

/* For how many events this one counts; 0: it is left out. */
static __always_inline u32 weight_of_this(void)
{
	u32 shift = sample_shift & 31;

	if (!shift)
		return 1;
	return bpf_get_prandom_u32() & ((1U << shift) - 1) ? 0 : 1U << shift;
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
