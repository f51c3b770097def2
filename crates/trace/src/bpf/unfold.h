/* SPDX-License-Identifier: GPL-2.0-only */
/* What the fast unfold program and user space share; src/unfold.rs has the same. */
#ifndef GLEANER_UNFOLD_H
#define GLEANER_UNFOLD_H

#define UNFOLD_CPUS 1024
#define UNFOLD_CPU_WORDS (UNFOLD_CPUS / 64)
/* How many waiting threads of a vCPU are watched; a power of two. */
#define UNFOLD_PLACES 8

#define CLOCK_MONOTONIC 1
#define EBUSY 16
#define EINVAL 22

struct overdue {
	/* CLOCK_MONOTONIC. */
	u64 at_ns;
	u64 waited_ns;
	u32 cpu;
	u32 pid;
};

_Static_assert(sizeof(struct overdue) == 24, "src/unfold.rs reads 24 bytes");

#endif
