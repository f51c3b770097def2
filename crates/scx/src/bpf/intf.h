/* SPDX-License-Identifier: GPL-2.0-only */
/* What user space sets and reads. It takes the types from the BTF of the object. */
#ifndef GLEANER_SCX_INTF_H
#define GLEANER_SCX_INTF_H

#define MAX_PCPUS 1024

/* A VM: the vCPUs of one process. */
struct vm {
	/* Of its control group, 1 to 10000; 100 is normal. */
	u32 weight;
	u32 vcpus;
	/* vCPUs that run or wait for a pCPU. */
	u32 active;
	/* The same on average, in 1/ACTIVE_UNIT: the vCPUs that share the weight. */
	u32 average;
	/* When `active` was last added up, and the sum of vCPUs times nanoseconds since `summed_from`. */
	u64 changed_at;
	u64 summed_from;
	u64 sum;
	/* Since it was seen first: time for which its vCPUs ran, reschedule interrupts between them, pause-loop exits. */
	u64 ran_ns;
	u64 reschedules;
	u64 spins;
	/* vCPUs that run or wait on each pCPU. */
	u32 on[MAX_PCPUS];
};

/* What interrupts with a vector mean to the guest's operating system. */
enum vector_use {
	USE_NONE,
	USE_RESCHEDULE,
	USE_SHOOTDOWN,
};

/* Counted per pCPU since the start. */
enum stat {
	/* Requests for urgency, by kind. */
	STAT_RESCHED_DP,
	STAT_RESCHED_CO,
	STAT_TLB_CO,
	/* Urgent vCPUs that ran before the fair order. */
	STAT_URGENT_RUNS,
	/* Urgent vCPUs that had to wait, being ahead by more than the allowance. */
	STAT_OVER_ALLOWANCE,
	/* Preemptions that were delayed. */
	STAT_PROTECTED,
	/* Urgency that ended with a pause-loop exit. */
	STAT_CANCELLED,
	/* vCPUs that gave their pCPU away for one that they wait for. */
	STAT_YIELDS,
	/* Tasks taken from another pCPU's queue: by an idle pCPU, and because they were behind. */
	STAT_STOLEN,
	STAT_PULLED,
	/* Woken vCPUs put beside a sibling. */
	STAT_STACKED,
	/* Woken vCPUs put on the pCPU of their waker, which was about to halt. */
	STAT_FOLLOWED,
	/* Woken vCPUs put on an idle thread of a core that runs a task of the same kind. */
	STAT_ALIKE,
	/* Interrupts whose recipient is not known. */
	STAT_UNKNOWN_RECIPIENTS,
	STATS,
};

/* What is recorded, and which fields of `struct event` it has; `at` and `on` are of all. */
enum event_kind {
	/* The kernel hands `task` to the scheduler, and takes it away for good. */
	EVENT_ENTERS,
	EVENT_LEAVES,
	/* `task` is a vCPU of the VM `other`, found on `cpu`. */
	EVENT_VCPU,
	/* `task` can run, last on `cpu`; it cannot any more, because it sleeps or (`flag` 0) for a moment. */
	EVENT_RUNNABLE,
	EVENT_QUIESCENT,
	/*
	 * `task`, last on `place`, is woken by `other` on `cpu`; `allowed` and `idle` pCPUs. `flag`: the placement rule is for
	 * it. `burst`: its expected burst.
	 */
	EVENT_WOKEN,
	/* `task`, of the weight `value`, is to wait for `cpu`; `what`: an enum queueing. `allowed` and `idle` as above. */
	EVENT_QUEUED,
	/* `cpu` asks what to run; `task`: who runs and could go on, with this `burst`; or 0. */
	EVENT_ASKS,
	/* `task` begins to run on `cpu`, with the weight `value` and this `burst`; it stops. */
	EVENT_RUNS,
	EVENT_STOPS,
	/* `task` sent `other` an interrupt, `what`: an enum vector_use; `flag`: that one was halted. */
	EVENT_INTERRUPT,
	/* What follows from the interrupt of `task` holds by now; other pCPUs may have seen it since. */
	EVENT_SENT,
	/* What `task` sent is delivered, and a pCPU where it ran and a recipient waits is to decide anew. */
	EVENT_DELIVERED,
	/* `task` acknowledged shootdowns; it halts; it spins; it gives its pCPU away for `other`. */
	EVENT_ACKNOWLEDGES,
	EVENT_HALTS,
	EVENT_SPINS,
	EVENT_YIELDS,
	/* From here on decisions. `task` was put on `cpu`; `flag`: which was idle. */
	EVENT_PLACED,
	/* `cpu` was kicked, so that it decides anew; `flag`: it was idle. */
	EVENT_KICKED,
	/* `task`, which has woken, preempts who runs on `cpu`. */
	EVENT_PREEMPTS,
	/* The pCPU decides anew in `value` ns. */
	EVENT_TIMED,
	/* What `cpu` does next; `what`: an enum choice. */
	EVENT_CHOSE,
	/* Whether `task` gave its pCPU away: `flag`. */
	EVENT_YIELDED,
};

/* How a task waits. */
enum queueing {
	/* In the order of virtual time. */
	QUEUE_FAIR,
	/* The same, and it has just woken. */
	QUEUE_WOKEN,
	/* Next on its pCPU, whatever its virtual time. */
	QUEUE_LOCAL,
};

/* What a pCPU does next. */
enum choice {
	/* It is idle. */
	CHOICE_IDLE,
	/* Who ran goes on: nobody that waits is before it; it is protected; it is the only urgent one. */
	CHOICE_GOES_ON,
	CHOICE_PROTECTED,
	CHOICE_URGENT_GOES_ON,
	/* An urgent vCPU that waited here; the first one that waited here. */
	CHOICE_URGENT,
	CHOICE_FIRST,
	/* One from another pCPU: because it was behind there; because nobody waits here. */
	CHOICE_PULLED,
	CHOICE_STOLEN,
};

struct event {
	/* Of the monotonic clock, in ns; 0 where no decision depends on it. */
	u64 at;
	u64 value;
	/* Of a task, in ns. */
	u64 burst;
	/* pCPUs, a bit for each. */
	u64 allowed;
	u64 idle;
	/* Threads. */
	s32 task;
	s32 other;
	/* pCPUs. */
	s32 cpu;
	s32 place;
	/* The pCPU that this happened on. */
	u32 on;
	u8 kind;
	u8 what;
	u8 flag;
	u8 unused;
};

#endif
