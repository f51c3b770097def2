/* SPDX-License-Identifier: GPL-2.0-only */
/* What user space sets and reads. It takes the types from the BTF of the object. */
#ifndef GLEANER_SCX_INTF_H
#define GLEANER_SCX_INTF_H

/* A VM: the vCPUs of one process. */
struct vm {
	/* Its rules, if `own_rules`; else the default ones. */
	struct urgent_rules rules;
	u32 own_rules;
	/* Of its control group, 1 to 10000; 100 is normal. */
	u32 weight;
	u32 vcpus;
	/* vCPUs that run or wait for a pCPU: they share the weight. */
	u32 active;
};

/* What interrupts with a vector mean to the guest's operating system. */
enum vector_use {
	USE_NONE,
	USE_RESCHEDULE,
	USE_SHOOTDOWN,
};

/* Counted per pCPU since the start. */
struct stats {
	/* Requests for urgency, by kind. */
	u64 resched_dp;
	u64 resched_co;
	u64 tlb_co;
	/* Urgent vCPUs that ran before the fair order. */
	u64 urgent_runs;
	/* Urgent vCPUs that had to wait, being ahead by more than the allowance. */
	u64 over_allowance;
	/* Preemptions that were delayed. */
	u64 protected;
	/* Urgency that ended with a pause-loop exit. */
	u64 cancelled;
	/* Tasks taken from another pCPU's queue: by an idle pCPU, and because they were behind. */
	u64 stolen;
	u64 pulled;
	/* Woken vCPUs put beside a sibling. */
	u64 stacked;
	/* Interrupts whose recipient is not known. */
	u64 unknown_recipients;
};

#endif
