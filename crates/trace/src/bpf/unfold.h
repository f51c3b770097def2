/* SPDX-License-Identifier: GPL-2.0-only */
/* What the fast unfold program and user space share; src/unfold.rs has the same. */
#ifndef GLEANER_UNFOLD_H
#define GLEANER_UNFOLD_H

#define UNFOLD_CPUS 1024
#define UNFOLD_CPU_WORDS (UNFOLD_CPUS / 64)

#define CLOCK_MONOTONIC 1
#define EBUSY 16
#define EINVAL 22

/* Threads crowd on the active vCPUs. */
struct crowd {
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

_Static_assert(sizeof(struct crowd) == 32, "src/unfold.rs reads 32 bytes");

#endif
