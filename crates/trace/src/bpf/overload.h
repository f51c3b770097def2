/* SPDX-License-Identifier: GPL-2.0-only */
/* What the fast expansion program and user space share; src/overload.rs has the same. */
#ifndef GLEANER_OVERLOAD_H
#define GLEANER_OVERLOAD_H

#define OVERLOAD_CPUS 1024
#define OVERLOAD_CPU_WORDS (OVERLOAD_CPUS / 64)

#define CLOCK_MONOTONIC 1
#define EBUSY 16
#define EINVAL 22

/* Threads queue up on the active vCPUs. */
struct overload {
	/* CLOCK_MONOTONIC. */
	u64 at_ns;
	/* For how long they have, from the first look to the last. */
	u64 lasted_ns;
	/* How often they were looked at meanwhile. */
	u32 looks;
	/* At the last look. */
	u32 runnable;
	/* The sum over the looks of the threads that had to wait. */
	u64 waiting;
};

_Static_assert(sizeof(struct overload) == 32, "src/overload.rs reads 32 bytes");

#endif
