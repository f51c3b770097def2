/* SPDX-License-Identifier: GPL-2.0-only */
/* What the recording program shares with user space. */
#ifndef GLEANER_RECORD_H
#define GLEANER_RECORD_H

/* A quarter of a million events; user space reads them every few milliseconds. */
#define RECORD_RING_BYTES (8 << 20)
#define COMM_BYTES 16

enum record_kind {
	/* A switch, by how the previous thread left. */
	SWITCH_RUNNABLE,
	SWITCH_BLOCKED,
	SWITCH_BLOCKED_IO,
	SWITCH_EXITED,
	RECORD_WAKE,
	RECORD_NAME,
};

/* In place of a TID: no thread (an idle vCPU, an interrupt), or one outside the scope. */
enum record_tid {
	TID_NOBODY = 0,
	TID_OTHER = 0xffffffff,
};

struct record {
	/* On CLOCK_MONOTONIC. */
	u64 at_ns;
	enum record_kind kind;
	u32 cpu;
	/*
	 * A switch: previous and next thread. A wake-up: waker and wakee. A
	 * name: thread and process.
	 */
	enum record_tid from;
	enum record_tid to;
};

struct record_name {
	struct record record;
	u8 comm[COMM_BYTES];
};

#endif
