/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the program that measures waiting and user space; src/waiting.rs has the same. */
#ifndef GLEANER_WAITING_H
#define GLEANER_WAITING_H

struct waits {
	/* Wake-ups of the scope's threads, sampled or not. */
	u64 woken;
	/* Latencies of the sampled ones that have ended. */
	struct hist latencies;
};

#endif
