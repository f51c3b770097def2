/* SPDX-License-Identifier: GPL-2.0-only */
/* What the program that measures waiting shares with user space. */
#ifndef GLEANER_WAITING_H
#define GLEANER_WAITING_H

struct waits {
	/* Wake-ups of the scope's threads, sampled or not. */
	u64 woken;
	/* Latencies of the sampled ones that have ended. */
	struct hist latencies;
};

#endif
