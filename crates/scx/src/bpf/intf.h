/* SPDX-License-Identifier: GPL-2.0-only */
/* What user space sets and reads. It takes the types from the BTF of the object. */
#ifndef GLEANER_SCX_INTF_H
#define GLEANER_SCX_INTF_H

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
	/* Interrupts whose recipient is not known. */
	STAT_UNKNOWN_RECIPIENTS,
	STATS,
};

#endif
