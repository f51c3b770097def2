/* SPDX-License-Identifier: GPL-2.0-only */
/* The maps, and what is in them. */
#ifndef GLEANER_SCX_STATE_H
#define GLEANER_SCX_STATE_H

#define MAX_VMS 4096
#define MAX_VCPUS 16384
#define BPF_MAP_TYPE_CGRP_STORAGE 32
#define CLOCK_MONOTONIC 1

/* Slice of whoever is not urgent. */
const volatile u64 fair_slice_ns = 3000000;
/* A pCPU looks for tasks that are behind on others so often at most. */
const volatile u64 balance_ns = 10000000;
/* A VM's active vCPUs are averaged over so long: several of its computations between two waits. */
const volatile u64 average_ns = 10000000;
/*
 * A vCPU that is expected to halt this soon after it woke a sibling may do so,
 * and the sibling runs next on its pCPU. It is KVM's default limit of polling,
 * and short beside the slice that a vCPU of another VM would lose.
 */
const volatile u64 follow_ns = 200000;
const volatile enum placement_rule placement_rule = PLACEMENT_LOAD_CONSCIOUS;
/* The last-level cache of each pCPU, as a number. */
const volatile u32 llc_of[MAX_PCPUS] = {};
/* The next thread of each pCPU's core, in a ring; itself if there is no other one. Of those that are offline 0. */
const volatile u32 next_thread[MAX_PCPUS] = {};
/* Some core has several threads, and it matters who shares it. */
const volatile bool symbiosis = false;
/* Rules of VMs that have none of their own. User space changes them at any time. */
struct urgent_rules default_rules = {};
/* `enum vector_use` of each vector, in guests of VMs that have no table of their own; user space changes it at any time. */
u8 uses[256] = {};
/* Some VM has a table, or rules, of its own. */
u32 has_own_uses = 0;
u32 has_own_rules = 0;

/* The numbers of pCPUs are below this one; some may be offline. */
u32 pcpu_count = 0;
/* Never changes: when a pCPU goes offline or comes back, the kernel ends the scheduler. */
u32 online_count = 0;
/* `load` of all pCPUs. */
u64 total_load = 0;
/* Highest virtual time at which a task started to run in the fair order. */
u64 floor_vtime = 0;

/* Of more senders of shootdowns nobody knows that they wait. */
#define ASKERS 4

/* A task that sched_ext schedules. */
struct task {
	struct urgency urgency;
	/* Order of urgent vCPUs: when it became urgent, or its urgent slice ended. */
	u64 urgent_since;
	/* When it started to wait for a pCPU. */
	u64 queued_at;
	/* How far its virtual time was ahead of those who waited when it fell asleep. */
	u64 ahead;
	/* When it started to run. */
	u64 ran_from;
	/* Up to when its time is in its VM's. */
	u64 accounted_until;
	/* The process, if it is a vCPU that is known as such; else 0. */
	u32 vm;
	/* The pCPU in whose load it is counted, plus 1; 0: it sleeps. */
	u32 counted;
	/* What it adds to that load. */
	u64 load;
	/* It is one of its VM's active vCPUs. */
	u32 active;
	/* It has a pCPU now. */
	u32 runs;
	/* When it last woke a sibling; 0: it has halted since. */
	u64 woke_at;
	/* How often of late it halted soon after that. */
	u32 halted_soon;
	/* Moving average of its bursts, the times between two waits. */
	u64 burst;
	/* For how long it has computed since its last wait, up to its last stop; if it runs, the time from which to add. */
	u64 computed;
	u64 computes_from;
	/* The pCPU, plus 1, that decides anew once KVM has delivered what this vCPU sent; 0: none. */
	u32 owes;
	/* Senders of shootdowns that wait for its answer; 0: none. */
	s32 askers[ASKERS];
	/* For KVM: the vCPU, its VM, and its number there. */
	u64 vcpu;
	u64 kvm;
	u64 vcpu_id;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_VMS);
	__type(key, u32);
	__type(value, struct vm);
} vms SEC(".maps");

/* What is put there first, without times; too large for the stack. */
const volatile struct vm new_vm = { .weight = 100 };

/*
 * Rules of VMs that have their own, by process. User space changes them at any
 * time, and nothing else of a VM: its counts change meanwhile.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VMS);
	__type(key, u32);
	__type(value, struct urgent_rules);
} own_rules SEC(".maps");

struct own_uses {
	u8 of[256];
};

/* The same for `uses`. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MAX_VMS);
	__type(key, u32);
	__type(value, struct own_uses);
} own_uses SEC(".maps");

/* Who gets an interrupt that a vCPU sends. */
struct address {
	u64 kvm;
	u64 vcpu_id;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_VCPUS);
	__type(key, struct address);
	__type(value, s32);
} threads SEC(".maps");

struct pcpu {
	/* Ends a slice or a protection between two ticks. */
	struct bpf_timer timer;
	/* Virtual time of the task that runs, when it started to. */
	u64 vtime;
	u64 ran_from;
	/* When the urgent slice of the task that runs began. */
	u64 slice_from;
	u64 weight;
	/* Of the tasks that run or wait here. */
	u64 load;
	/* Urgent vCPUs might wait here; who runs here might be urgent. */
	u32 urgent;
	u32 urgent_runs;
	/* A task runs here. */
	u32 runs;
	/* A woken task preempts that one, and does not run yet. */
	u32 preempting;
	/* The vCPU that runs here may have a kick to send when it next enters its guest (`owes`). */
	u32 owed;
	u32 online;
	/* The expected burst of the task that runs, when it was placed here, started or went on; 0: none runs. */
	u64 burst;
	u64 balanced_at;
	/* When the timer expires, or did. */
	u64 decides_at;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MAX_PCPUS);
	__type(key, u32);
	__type(value, struct pcpu);
} pcpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_CGRP_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, u32);
} weights SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, STATS);
	__type(key, u32);
	__type(value, u64);
} stats SEC(".maps");

static __always_inline void count(u32 stat)
{
	u64 *number = bpf_map_lookup_elem(&stats, &stat);

	if (number)
		*number += 1;
}

static __always_inline struct task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

/* The same, and makes it if there is none yet; NULL: there is no memory. */
static __always_inline struct task *new_task(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
}

static __always_inline struct pcpu *pcpu_of(u32 cpu)
{
	return bpf_map_lookup_elem(&pcpus, &cpu);
}

static __always_inline struct vm *vm_of(struct task *t)
{
	return t->vm ? bpf_map_lookup_elem(&vms, &t->vm) : NULL;
}

/* Whether an interrupt with this vector means anything to some guest: those of devices and timers are looked at no further. */
static __always_inline bool has_use(u8 vector)
{
	return has_own_uses || uses[vector] != USE_NONE;
}

/* What it means to the guest of the vCPU. */
static __always_inline u8 use_of(struct task *t, u8 vector)
{
	const struct own_uses *own = has_own_uses ? bpf_map_lookup_elem(&own_uses, &t->vm) : NULL;

	return own ? own->of[vector] : uses[vector];
}

static __always_inline const struct urgent_rules *rules_of(struct task *t)
{
	const struct urgent_rules *own = has_own_rules ? bpf_map_lookup_elem(&own_rules, &t->vm) : NULL;

	return own ? own : &default_rules;
}

#endif
