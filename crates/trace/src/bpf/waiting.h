/* SPDX-License-Identifier: GPL-2.0-only */
/* What the program that measures waiting and user space share; src/waiting.rs has the same. */
#ifndef GLEANER_WAITING_H
#define GLEANER_WAITING_H

struct waits {
	/* Wake-ups of the scope's threads, sampled or not. */
	u64 woken;
	/* The latencies that are known. */
	struct hist latencies;
};

#endif
