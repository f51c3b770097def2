/* SPDX-License-Identifier: GPL-2.0-only */
/* What the fast expansion program shares with user space. */
#ifndef GLEANER_OVERLOAD_H
#define GLEANER_OVERLOAD_H

#define OVERLOAD_CPUS 1024
#define OVERLOAD_CPU_WORDS (OVERLOAD_CPUS / 64)

#define CLOCK_MONOTONIC 1
#define EBUSY 16
#define EINVAL 22

/* More threads queue up on the active vCPUs than they can run. */
struct overload {
	/* On CLOCK_MONOTONIC. */
	u64 at_ns;
	/* Time from the first sample to the last. */
	u64 lasted_ns;
	/* Number of samples. */
	u32 samples;
	/* In the last sample. */
	u32 runnable;
	/* Waiting threads, summed over the samples. */
	u64 waiting;
};

#endif
