/* SPDX-License-Identifier: GPL-2.0-only */
/* What wakers.bpf.c counts. */
#ifndef GLEANER_WAKERS_H
#define GLEANER_WAKERS_H

/* Processes, by PID. The waker is 0 where the idle task was interrupted. */
struct pair {
	u32 waker;
	u32 wakee;
};

#endif
