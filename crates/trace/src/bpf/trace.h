/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the programs count, and where. User space takes the types and the enums
 * from the BTF of the objects. Counters are u64, to be summed over the vCPUs.
 */
#ifndef GLEANER_TRACE_H
#define GLEANER_TRACE_H

/* An enum, since the BTF has no macros. */
enum trace_format {
	/* log2 of a histogram's buckets per power of two. */
	HIST_SUB_BITS = 3,
	HIST_BUCKETS = 256,
	/* The program counter is this many bytes after the start of a struct code. */
	CODE_BEFORE = 32,
};

/*
 * A histogram of nanoseconds with eight buckets per power of two, so that a
 * bucket's width is at most an eighth of its value. The last one, from 16 s on,
 * is open-ended.
 */
struct hist {
	u64 count;
	u64 total_ns;
	u64 buckets[HIST_BUCKETS];
};

/* Lengths of time that have a histogram. */
enum hist_id {
	/* From the waker's sched_waking until the wakee runs, by what its vCPU was doing. */
	HIST_WAKE_SAME,
	HIST_WAKE_AWAKE,
	HIST_WAKE_POLLING,
	HIST_WAKE_HALTED,
	/* From preemption of a runnable thread until it runs again. */
	HIST_PREEMPTED,
	/* Blocked until woken, by what the thread waits in. */
	HIST_WAIT_FUTEX,
	HIST_WAIT_SOCKET,
	HIST_WAIT_POLL,
	HIST_WAIT_SLEEP,
	HIST_WAIT_IO,
	HIST_WAIT_OTHER,
	/* Spinning on a lock in the kernel. */
	HIST_SPIN,
	/* Waiting for other vCPUs to flush their TLBs. */
	HIST_SHOOTDOWN,
	/* Idle periods, per vCPU. */
	HIST_IDLE_POLL,
	HIST_IDLE_HALT,
	HISTS,
};

/* Events, per vCPU. */
enum count_id {
	COUNT_SENT_RESCHEDULE,
	COUNT_SENT_CALL,
	COUNT_SENT_TLB,
	COUNT_TIMER_PROGRAMMED,
	COUNT_TICK_STOPPED,
	COUNT_WAKE_WITHOUT_IPI,
	COUNT_WAKE_QUEUED,
	COUNT_YIELD,
	COUNT_FUTEX_WAKE,
	COUNT_FUTEX_REQUEUE,
	COUNT_FUTEX_PI,
	COUNT_LOST_TASK,
	COUNT_LOST_NAME,
	COUNT_LOST_EDGE,
	COUNTS,
};

struct counts {
	u64 all[COUNTS];
	/* Events caused by the scope's threads. */
	u64 scope[COUNTS];
};

#define MAX_NAMES 1024
#define MAX_EDGES 4096

/* Threads are distinguished by the number of their name. The first two are not in the map. */
enum name_id {
	NAME_OTHER,
	NAME_INTERRUPT,
	NAME_FIRST,
};

/* Powers of two of nanoseconds of computation between two waits. */
#define RUN_BUCKETS 36

struct thread {
	u64 cpu_ns;
	u64 segments;
	u64 segment_ns;
	u64 preempted;
	/* Calls of sched_yield, and those that found another thread to run. */
	u64 yields;
	u64 yielded;
	/* Timer interrupts while the thread ran: in total, in user mode, and in sched_yield. */
	u64 ticks;
	u64 user_ticks;
	u64 yield_ticks;
	u64 woken;
	u64 woken_ns;
	u64 runs[RUN_BUCKETS];
};

/* The names of a waker and a wakee, by number. */
struct edge_key {
	u16 waker;
	u16 wakee;
};

struct edge {
	u64 count;
	u64 total_ns;
	u64 halted;
	u64 polling;
};

/* Code around a program counter. */
#define CODE_BYTES 64
#define MAX_SPOTS 1024

struct spot {
	u64 ip;
	u64 name;
};

struct code {
	u64 count;
	u8 bytes[CODE_BYTES];
};

enum scope_kind {
	SCOPE_SYSTEM,
	SCOPE_TREE,
	SCOPE_CHILDREN,
	SCOPE_CGROUP,
};

enum scope_hierarchy {
	HIERARCHY_V2,
	HIERARCHY_CPUSET,
	HIERARCHY_CPU,
	HIERARCHY_CPUACCT,
};

#endif
